"""Linear layers whose weights are laid out once for the processor's matrix products.

PyTorch passes a plain weight to oneDNN or MKL, which lay it out again on every call. The
operators that torch.compile packs weights with do it once. Results differ by rounding alone.
"""

from __future__ import annotations

from typing import Any

# The number of rows that the layout is chosen for; others work as well.
_ROWS = 1536


def pack_linear(model: Any) -> None:
    """Replace the linear layers of a model on the CPU, in place; elsewhere do nothing.

    Args:
        model: a torch module in evaluation mode, float32 or bfloat16.
    """
    import torch

    operators: Any = torch.ops.mkldnn
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if model.device.type != "cpu" or not all(hasattr(operators, name) for name in names):
        return
    packed = [torch.float32, *[torch.bfloat16] * operators._is_mkldnn_bf16_supported()]
    if model.dtype not in packed:
        return

    class PackedLinear(torch.nn.Module):
        def __init__(self, linear: torch.nn.Linear) -> None:
            super().__init__()
            self.weight = operators._reorder_linear_weight(linear.weight.detach(), _ROWS)
            self.bias = None if linear.bias is None else linear.bias.detach()

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = operators._linear_pointwise(
                vectors, self.weight, self.bias, "none", [], None
            )
            return output

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, PackedLinear(child))
