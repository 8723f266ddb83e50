"""The context of one request: keys and values of its rows in every layer, at absolute positions.

A row is projected once, when it arrives: c = RMSNorm(fc(taps)), then per layer K = rope(k_norm(k_proj c))
and V = v_proj c.  Rows lie in growing storage; dropping rows moves a bound, and storage is compacted when
it runs out.
"""

import torch
from ofl.contract.dspark_v1 import RowDtype, RowForm
from torch import Tensor

from x86_worker.checkpoint import DrafterConfig
from x86_worker.drafters.base import ContextMisuseError
from x86_worker.drafters.reference.maths import rms_norm, rotary_table, rotate
from x86_worker.drafters.reference.weights import Weights

CAPACITY_MIN = 64
ROW_DTYPES = {
    RowDtype.FLOAT32: torch.float32,
    RowDtype.BFLOAT16: torch.bfloat16,
    RowDtype.FLOAT16: torch.float16,
}


class ReferenceContext:
    """Implements `base.Context`.  Rows are kept at positions start .. end-1."""

    def __init__(
        self, config: DrafterConfig, weights: Weights, row_form: RowForm, row_dtype: RowDtype
    ) -> None:
        self._config = config
        self._weights = weights
        self._row_form = row_form
        self._row_dtype = row_dtype
        self._row_elements = config.row_elements if row_form is RowForm.RAW else config.hidden_size
        self._keys = self._values = self._storage(0)
        self._base = 0  # position of the storage's first row
        self._start = 0
        self._end = 0

    @property
    def start(self) -> int:
        """Lowest position held."""
        return self._start

    @property
    def end(self) -> int:
        """One past the highest position held."""
        return self._end

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """Truncate at first_position, then take n_rows rows; see `base.Context`."""
        if self._start == self._end:
            self._start = self._end = self._base = first_position
        if not self._start <= first_position <= self._end:
            held = f"{self._start} .. {self._end}"
            raise ContextMisuseError(f"rows at {first_position} do not follow a context of {held}")
        expected = n_rows * self._row_elements * self._row_dtype.itemsize
        if rows.nbytes != expected:
            raise ContextMisuseError(f"{n_rows} rows take {expected} bytes, not {rows.nbytes}")
        self._end = first_position
        if n_rows:
            keys, values = self._project(first_position, rows)
            self._reserve(n_rows)
            at = self._end - self._base
            self._keys[:, at : at + n_rows] = keys
            self._values[:, at : at + n_rows] = values
            self._end += n_rows

    def drop_before(self, position: int) -> None:
        """Let go of rows before position."""
        if not self._start <= position <= self._end:
            raise ContextMisuseError(f"{position} lies outside the context of {self._start} .. {self._end}")
        self._start = position

    def clear(self) -> None:
        """Back to empty; the memory goes too."""
        self._keys = self._values = self._storage(0)
        self._base = self._start = self._end = 0

    def rows(self, layer: int, first: int) -> tuple[Tensor, Tensor]:
        """Keys and values of positions first .. end-1 in a layer, each [rows, kv_heads, head_dim]."""
        span = slice(first - self._base, self._end - self._base)
        return self._keys[layer, span], self._values[layer, span]

    def _project(self, first_position: int, rows: memoryview) -> tuple[Tensor, Tensor]:
        """Keys and values of new rows, each [layers, rows, kv_heads, head_dim]."""
        config, weights = self._config, self._weights
        flat = torch.frombuffer(bytearray(rows), dtype=ROW_DTYPES[self._row_dtype])
        given = flat.view(-1, self._row_elements).to(weights.norm.device, weights.norm.dtype)
        states = given
        if self._row_form is RowForm.RAW:
            states = rms_norm(weights.fc(given), weights.hidden_norm, config.rms_norm_eps)
        positions = torch.arange(first_position, first_position + len(given), device=given.device)
        table = rotary_table(positions, config.head_dim, config.rope_theta)
        shape = (len(given), config.num_key_value_heads, config.head_dim)
        keys = [
            rotate(rms_norm(layer.k(states).view(shape), layer.k_norm, config.rms_norm_eps), table)
            for layer in weights.layers
        ]
        values = [layer.v(states).view(shape) for layer in weights.layers]
        return torch.stack(keys), torch.stack(values)

    def _reserve(self, n_rows: int) -> None:
        """Make room for n_rows rows at end, moving what is held to the front of the storage."""
        capacity = self._keys.shape[1]
        if self._end - self._base + n_rows <= capacity:
            return
        held = self._end - self._start
        # Growing beyond half keeps copying rare: each move is paid for by as many rows as it moves.
        while capacity < 2 * (held + n_rows):
            capacity = max(CAPACITY_MIN, 2 * capacity)
        old, span = (self._keys, self._values), slice(self._start - self._base, self._end - self._base)
        self._keys, self._values = self._storage(capacity), self._storage(capacity)
        self._keys[:, :held], self._values[:, :held] = old[0][:, span], old[1][:, span]
        self._base = self._start

    def _storage(self, capacity: int) -> Tensor:
        config, like = self._config, self._weights.norm
        shape = (len(config.layers), capacity, config.num_key_value_heads, config.head_dim)
        return torch.empty(shape, dtype=like.dtype, device=like.device)
