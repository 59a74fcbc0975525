"""From a Predict to per-sample scores, and from scores to rows: metrics, cells of test images, summaries.

What may enter: what measures. An evaluator knows `predict` and never asks which method it is.
"""
