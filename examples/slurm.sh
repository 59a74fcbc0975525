#!/bin/bash
# SwinV2-B on ImageNet with reference masking, on 2 nodes of 8 GPUs: sbatch examples/slurm.sh
# Slurm sends this script SIGTERM two minutes before the time is up; it passes it on, the run saves and ends, and the job
# is queued again. It goes on from there, to the same run, however often. A run that fails by itself is not queued again.
#SBATCH --job-name=anchored
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
again=no
trap 'again=yes; kill -TERM "$run"' TERM
srun torchrun \
  --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  -m anchored train --data "folder:$IMAGENET" --stream --workers 11 \
  --model torchvision:swin_v2_b --recipe imagenet_swin_v2_b --epochs 330 --image-size 256 \
  --method masking --reference-source batch --references 10000 --val-fraction 0.01 --out runs/swin_v2_b-masking &
run=$!
wait "$run"
status=$?
if [ "$again" = yes ]; then
  wait "$run" # the signal ended the first wait
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
