"""Looking at hidden states as a transformer computes them, and stopping it early."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retriever.encoders.transformer.architectures import architecture_of

if TYPE_CHECKING:
    import torch

Visit = Callable[[int, "torch.Tensor"], None]


class ReachedError(Exception):
    """The highest layer that is needed is computed: the model can stop."""


class LayerHooks:
    """The layers of a model, in the order of their calls.

    Args:
        modules: the distinct modules that compute a layer each time they are called.
        pieces_first: whether they see (pieces, texts, width).

    Attributes:
        modules: as given.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], pieces_first: bool) -> None:
        self.modules = modules
        self._pieces_first = pieces_first

    @contextmanager
    def visited(self, layers: Collection[int], visit: Visit) -> Iterator[None]:
        """While the block runs a forward pass, show each hidden state of `layers` to `visit`.

        Raises:
            ReachedError: out of the forward pass, as soon as the highest one was shown.
        """
        highest, calls = max(layers), 0

        def show(layer: int, state: torch.Tensor) -> None:
            if layer in layers:
                visit(layer, state.transpose(0, 1) if self._pieces_first else state)
            if layer == highest:
                raise ReachedError

        def before(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            if calls == 0:
                show(0, arguments[0] if arguments else named["hidden_states"])

        def after(_: Any, __: Any, output: Any) -> None:
            nonlocal calls
            calls += 1
            show(calls, output[0] if isinstance(output, tuple) else output)

        handles = [
            self.modules[0].register_forward_pre_hook(before, with_kwargs=True),
            *(module.register_forward_hook(after) for module in self.modules),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def find_layers(model: Any) -> LayerHooks | None:
    """The layers of a transformers model, or None if its architecture is not known."""
    architecture = architecture_of(model.config.to_dict())
    if architecture is None:
        return None
    return LayerHooks(list(model.get_submodule(architecture.layers)), architecture.pieces_first)
