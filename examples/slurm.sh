#!/bin/bash
# SwinV2-B on ImageNet with reference masking, on 2 nodes of 8 GPUs: sbatch examples/slurm.sh
# Slurm sends SIGTERM two minutes before the time is up; the run saves, ends with status 143 and is queued again. It
# goes on from there, to the same run, however often.
#SBATCH --job-name=anchored
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun \
  --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  -m anchored train --data "folder:$IMAGENET" --stream --workers 11 \
  --model torchvision:swin_v2_b --recipe imagenet_swin_v2_b --epochs 330 --image-size 256 \
  --method masking --reference-source batch --val-fraction 0.01 --out runs/swin_v2_b-masking
status=$?
[ "$status" -eq 0 ] || scontrol requeue "$SLURM_JOB_ID"
