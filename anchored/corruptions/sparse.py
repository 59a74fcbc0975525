"""Linear operators on whole images as sparse matrices: one product instead of many passes of samples."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

# Beyond this size of an image the matrix of a zoom blur would take over 50 megabytes.
MAX_PIXELS = 320 * 320


def csr(matrix: Any, dtype: torch.dtype) -> Tensor:
    """A scipy sparse matrix as a torch CSR tensor."""
    matrix = sparse.csr_matrix(matrix)
    values = torch.from_numpy(matrix.data.astype(np.float64)).to(dtype)
    with warnings.catch_warnings():
        # "Sparse CSR tensor support is in beta state": the product with a dense matrix is all that is used.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr),
            torch.from_numpy(matrix.indices),
            values,
            size=matrix.shape,
            check_invariants=False,
        )


def axis_matrix(index: np.ndarray, weights: np.ndarray, size: int) -> Any:
    """The matrix [rows, size] whose row r has weights[r, k] at index[r, k], repeated indices summed."""
    rows = np.repeat(np.arange(len(index)), index.shape[1])
    return sparse.coo_matrix((weights.ravel(), (rows, index.ravel())), shape=(len(index), size)).tocsr()


def apply(operator: Tensor, x: Tensor) -> Tensor:
    """operator [H * W, H * W] on every channel of [n, H, W, C]; a view [n, H, W, C] in the operator's dtype."""
    count, height, width, channels = x.shape
    pixels = height * width
    columns = x.reshape(count, pixels, channels).transpose(0, 1).to(operator.dtype).reshape(pixels, -1)
    product = operator @ columns
    return product.view(pixels, count, channels).transpose(0, 1).view(count, height, width, channels)
