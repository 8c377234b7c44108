"""Encodes numbers as the bytes of messages: unchanged, in half precision, or as int8 in blocks with one scale each.

Sizes are those that ``domain.job`` computes. Encoding a whole vector equals encoding its parts, cut at multiples of a
block, and joining the bytes. On a GPU with CuPy, one kernel computes the same bits as torch's several steps here. An
infinity or NaN makes its whole int8 block NaN.
"""

import torch
import torch.nn.functional as F

from dtfm_lab.domain.job import COMPRESSIONS, INT8_BLOCK
from dtfm_lab.runtime.gpu import cupy_codec

SCALE_BYTES = 4
"""Bytes of a block's scale, which is a float32."""
LARGEST = 127
"""Largest int8 to which a number is rounded."""


class Codec:
    """Encodes and decodes numbers of one dtype."""

    def __init__(self, how: str, dtype: torch.dtype) -> None:
        """``how`` is one of ``COMPRESSIONS``. ``dtype`` is the dtype of the numbers."""
        assert how in COMPRESSIONS
        self._how, self._dtype = how, dtype

    @property
    def is_lossy(self) -> bool:
        """True if decoded numbers are rounded."""
        return self._how != "none"

    def n_bytes(self, n_elements: int) -> int:
        """Return the encoded size of ``n_elements`` numbers."""
        if self._how == "int8":
            return n_elements + SCALE_BYTES * -(-n_elements // INT8_BLOCK)
        return n_elements * (2 if self._how == "fp16" else self._dtype.itemsize)

    def encode(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return (bytes,) uint8 on the same device. It is a view of ``numbers`` if nothing is compressed."""
        numbers = numbers.detach().reshape(-1)
        if self._how == "none":
            return numbers.view(torch.uint8)
        if numbers.is_cuda and cupy_codec.available():
            return cupy_codec.encode(self._how, numbers, self.n_bytes(numbers.numel()))
        if self._how == "fp16":
            largest = torch.finfo(torch.float16).max
            return numbers.clamp(-largest, largest).to(torch.float16).view(torch.uint8)
        return self._encode_int8(numbers)

    def decode(self, raw: torch.Tensor) -> torch.Tensor:
        """Return (numbers,) of the codec's dtype, on the same device."""
        if self._how == "none":
            return raw.view(self._dtype)
        if raw.is_cuda and cupy_codec.available():
            return cupy_codec.decode(self._how, raw, self._n_elements(raw.numel()), self._dtype)
        if self._how == "fp16":
            return raw.view(torch.float16).to(self._dtype)
        return self._decode_int8(raw)

    def _encode_int8(self, numbers: torch.Tensor) -> torch.Tensor:
        if not (n := numbers.numel()):
            return numbers.new_empty(0, dtype=torch.uint8)
        blocks = F.pad(numbers, (0, -n % INT8_BLOCK)).view(-(-n // INT8_BLOCK), INT8_BLOCK)
        peak = blocks.abs().amax(dim=1, keepdim=True)
        # divide by a tensor, because torch on a GPU multiplies by the reciprocal of a number, a CPU divides by it
        scale = (peak / torch.full_like(peak, LARGEST)).to(torch.float32)
        steps = blocks / torch.where(scale > 0, scale, 1).to(numbers.dtype)
        packed = torch.empty(len(blocks), SCALE_BYTES + INT8_BLOCK, dtype=torch.uint8, device=numbers.device)
        packed[:, :SCALE_BYTES] = scale.view(torch.uint8)
        packed[:, SCALE_BYTES:] = steps.round_().clamp_(-LARGEST, LARGEST).to(torch.int8).view(torch.uint8)
        return packed.view(-1)[: self.n_bytes(n)]

    def _decode_int8(self, raw: torch.Tensor) -> torch.Tensor:
        if not raw.numel():
            return raw.new_empty(0, dtype=self._dtype)
        whole = SCALE_BYTES + INT8_BLOCK
        packed = F.pad(raw, (0, -raw.numel() % whole)).view(-1, whole)
        scale = packed[:, :SCALE_BYTES].contiguous().view(torch.float32).to(self._dtype)
        numbers = packed[:, SCALE_BYTES:].view(torch.int8).to(self._dtype) * scale
        return numbers.view(-1)[: self._n_elements(raw.numel())]

    def _n_elements(self, n_bytes: int) -> int:
        """Return the number of compressed elements in ``n_bytes``: the inverse of ``n_bytes(n_elements)``."""
        if self._how == "int8":
            return n_bytes - SCALE_BYTES * -(-n_bytes // (SCALE_BYTES + INT8_BLOCK))
        return n_bytes // 2
