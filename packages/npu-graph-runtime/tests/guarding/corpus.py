"""Functions of which a captured graph would repeat something else, and harmless ones.

Each takes a tensor of four floats on a device. The line that has to be named ends in ``# here``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from npu_graph_runtime.diagnosis import FindingKind

if TYPE_CHECKING:
    from collections.abc import Callable

K = FindingKind


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, created again for each use, and the expected finding."""

    make: Callable[[], Callable[[Tensor], Any]]
    kind: FindingKind | None

    @property
    def name(self) -> str:
        return self.make.__name__

    @property
    def line(self) -> int:
        """The line that is marked."""
        lines, first = inspect.getsourcelines(self.make)
        (found,) = (first + index for index, line in enumerate(lines) if "# here" in line)
        return found


HIDDEN: list[Case] = []
HARMLESS: list[Case] = []


def found(kind: FindingKind) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        HIDDEN.append(Case(make, kind))
        return make

    return add


def harmless(make: Callable[[], Any]) -> Callable[[], Any]:
    HARMLESS.append(Case(make, None))
    return make


# Values that the host reads.


@found(K.SCALAR_READ)
def item() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        top = x.max()
        return x * top.item()  # here

    return step


@found(K.SCALAR_READ)
def int_of_a_tensor() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        count = int(x.sum())  # here
        return x + count

    return step


@found(K.SCALAR_READ)
def float_of_a_tensor() -> Callable[[Tensor], Any]:
    return lambda x: x * float(x.mean())  # here


@found(K.SCALAR_READ)
def bool_of_a_tensor() -> Callable[[Tensor], Any]:
    return lambda x: x * bool(x.any())  # here


@found(K.SCALAR_READ)
def branch_on_a_tensor() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        if x.sum() > 0:  # here
            return x + 1
        return x - 1

    return step


@found(K.SCALAR_READ)
def assertion_on_a_tensor() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        assert (x < 100).all(), "too large"  # here
        return x + 1

    return step


@found(K.SCALAR_READ)
def slice_by_a_tensor() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        length = (x > -9).sum()
        return x[:length]  # here

    return step


@found(K.SCALAR_READ)
def range_over_a_tensor() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        for _ in range((x > -9).sum()):  # here
            x = x + 1
        return x

    return step


@found(K.SCALAR_READ)
def python_in() -> Callable[[Tensor], Any]:
    return lambda x: x + (1.0 in x)  # here


@found(K.SCALAR_READ)
def formatted() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        text = f"{x.sum():.3f}"  # here
        return x + len(text)

    return step


@found(K.SCALAR_READ)
def equal() -> Callable[[Tensor], Any]:
    return lambda x: x + torch.equal(x, x * 2)  # here


@found(K.SCALAR_READ)
def allclose() -> Callable[[Tensor], Any]:
    return lambda x: x + torch.allclose(x, x * 2)  # here


@found(K.SCALAR_READ)
def one_hot_of_unknown_classes() -> Callable[[Tensor], Any]:
    return lambda x: nn.functional.one_hot((x > 0).long())  # here


@found(K.SCALAR_READ)
def read_in_a_submodule() -> Callable[[Tensor], Any]:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.max().item()  # here

    return nn.Sequential(nn.Identity(), Gate())


# Shapes that depend on values.


@found(K.DATA_DEPENDENT_SHAPE)
def nonzero() -> Callable[[Tensor], Any]:
    return lambda x: x.nonzero() + 1  # here


@found(K.DATA_DEPENDENT_SHAPE)
def where_of_a_condition() -> Callable[[Tensor], Any]:
    return lambda x: torch.where(x > 0)[0] + 1  # here


@found(K.DATA_DEPENDENT_SHAPE)
def mask() -> Callable[[Tensor], Any]:
    return lambda x: x[x > 0] * 2  # here


@found(K.DATA_DEPENDENT_SHAPE)
def write_by_mask() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        y = x * 2
        y[x > 0] = 1.0  # here
        return y

    return step


@found(K.DATA_DEPENDENT_SHAPE)
def masked_select() -> Callable[[Tensor], Any]:
    return lambda x: x.masked_select(x > 0) + 1  # here


@found(K.DATA_DEPENDENT_SHAPE)
def unique() -> Callable[[Tensor], Any]:
    return lambda x: torch.unique(x) + 1  # here


@found(K.DATA_DEPENDENT_SHAPE)
def bincount() -> Callable[[Tensor], Any]:
    return lambda x: torch.bincount(x.long().abs()) + 1  # here


@found(K.DATA_DEPENDENT_SHAPE)
def repeats() -> Callable[[Tensor], Any]:
    return lambda x: x.repeat_interleave((x > -5).long())  # here


# Copies to the host.


@found(K.COPY_TO_HOST)
def cpu() -> Callable[[Tensor], Any]:
    return lambda x: [x + 1, x.cpu()]  # here


@found(K.COPY_TO_HOST)
def to_cpu() -> Callable[[Tensor], Any]:
    return lambda x: [x + 1, x.to("cpu")]  # here


@found(K.COPY_TO_HOST)
def to_device_object_of_the_cpu() -> Callable[[Tensor], Any]:
    return lambda x: [x + 1, x.to(torch.device("cpu"))]  # here


@found(K.COPY_TO_HOST)
def copy_of_what_is_not_on_the_cpu() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        if not x.is_cpu and x.device != torch.device("cpu"):
            x = x + len(x.to(device="cpu"))  # here
        return x

    return step


@found(K.COPY_TO_HOST)
def to_cpu_without_waiting() -> Callable[[Tensor], Any]:
    return lambda x: [x + 1, x.to("cpu", non_blocking=True)]  # here


@found(K.COPY_TO_HOST)
def numpy() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        weights = x.detach().cpu().numpy()  # here
        return x * float(weights[0])

    return step


@found(K.COPY_TO_HOST)
def tolist() -> Callable[[Tensor], Any]:
    return lambda x: x + len(x.tolist())  # here


@found(K.COPY_TO_HOST)
def printed() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        y = x + 1
        print(y)  # here  # noqa: T201
        return y

    return step


@found(K.COPY_TO_HOST)
def copy_into_memory_of_the_host() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        host = torch.zeros(4, device="cpu")
        host.copy_(x)  # here
        return x + 1

    return step


@found(K.COPY_TO_HOST)
def copy_into_pinned_memory_that_is_dropped() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        torch.empty(4, pin_memory=True).copy_(x, non_blocking=True)  # here
        return x + 1

    return step


@found(K.COPY_TO_HOST)
def copy_into_pinned_memory_that_waits() -> Callable[[Tensor], Any]:
    host = torch.zeros(4).pin_memory()

    def step(x: Tensor) -> Tensor:
        host.copy_(x)  # here
        return x + 1

    return step


# Copies from the host.


@found(K.COPY_FROM_HOST)
def tensor_of_a_list() -> Callable[[Tensor], Any]:
    return lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)  # here


@found(K.COPY_FROM_HOST)
def new_tensor() -> Callable[[Tensor], Any]:
    return lambda x: x * x.new_tensor([1.0, 2.0, 3.0, 4.0])  # here


@found(K.COPY_FROM_HOST)
def tensor_moved_to_the_device() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        return x * scale.to(x.device)  # here

    return step


@found(K.COPY_FROM_HOST)
def index_by_a_list() -> Callable[[Tensor], Any]:
    return lambda x: x[[0, 2]] + 1  # here


@found(K.COPY_FROM_HOST)
def copy_of_pinned_memory_that_is_dropped() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        host = torch.ones(4).pin_memory()
        return x + host.to(x.device, non_blocking=True)  # here

    return step


@found(K.COPY_FROM_HOST)
def copy_of_pinned_memory_that_waits() -> Callable[[Tensor], Any]:
    host = torch.zeros(4).pin_memory()
    return lambda x: x + host.to(x.device)  # here


# Waiting, and seeds.


@found(K.WAIT)
def synchronize() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        y = x + 1
        torch.accelerator.synchronize()  # here
        return y

    return step


@found(K.WAIT)
def stream_synchronize() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        y = x + 1
        torch.accelerator.current_stream().synchronize()  # here
        return y

    return step


@found(K.WAIT)
def event_query() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        event = torch.Event(x.device.type)
        event.record()
        return x + event.query()  # here

    return step


@found(K.WAIT)
def event_synchronize() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        event = torch.Event(x.device.type)
        event.record()
        event.synchronize()  # here
        return x + 1

    return step


@found(K.RANDOM_SEED)
def seed() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        torch.manual_seed(0)  # here
        return x + torch.rand(4, device=x.device)

    return step


# Memory that is kept.


@found(K.KEPT_MEMORY)
def workspace_in_a_cache_of_functools() -> Callable[[Tensor], Any]:
    @functools.lru_cache
    def workspace(device: torch.device) -> Tensor:
        return torch.zeros(4, device=device)  # here

    return lambda x: x + workspace(x.device)


@found(K.KEPT_MEMORY)
def attribute_rebound() -> Callable[[Tensor], Any]:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.load: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.load = x * 2 if self.load is None else self.load + x  # here
            return x + 1

    return Counting()


@found(K.KEPT_MEMORY)
def buffer_made_inside() -> Callable[[Tensor], Any]:
    class Buffered(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.register_buffer("scale", torch.ones(4, device=x.device))  # here
            return x * self.get_buffer("scale")

    return Buffered()


@found(K.KEPT_MEMORY)
def appended_to_a_list() -> Callable[[Tensor], Any]:
    seen: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        seen.append(x * 2)  # here
        return x + 1

    return step


# Nothing to find.


@harmless
def arithmetic() -> Callable[[Tensor], Any]:
    return lambda x: torch.relu(x @ x.expand(4, 4).T) + x.softmax(-1)


@harmless
def model() -> Callable[[Tensor], Any]:
    return nn.Sequential(nn.Identity(), nn.SiLU(), nn.Softmax(-1))


@harmless
def choice_on_the_device() -> Callable[[Tensor], Any]:
    return lambda x: torch.where(x > 0, x, -x)


@harmless
def mask_of_fixed_shape() -> Callable[[Tensor], Any]:
    return lambda x: x.masked_fill(x > 0, 1.0)


@harmless
def index_of_integers() -> Callable[[Tensor], Any]:
    return lambda x: x[torch.arange(2, device=x.device)]


@harmless
def repeats_of_known_size() -> Callable[[Tensor], Any]:
    return lambda x: x.repeat_interleave((x > -50).long(), output_size=4)


@harmless
def sizes_and_names() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        if x.shape[0] > 2 and x.dtype is torch.float32 and x.dim() == 1:
            f"{tuple(x.shape)} {x.device} {len(x)}"
            return x + x.numel()
        return x

    return step


@harmless
def filled_on_the_device() -> Callable[[Tensor], Any]:
    return lambda x: x + torch.full((4,), 2.0, device=x.device) + torch.zeros_like(x)


@harmless
def number_in_a_tensor_of_the_host() -> Callable[[Tensor], Any]:
    return lambda x: x + torch.tensor(2.0)


@harmless
def written_in_place() -> Callable[[Tensor], Any]:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            x.add_(1).mul_(0.5)
            return x * 2

    return Cache()


@harmless
def random_numbers() -> Callable[[Tensor], Any]:
    return lambda x: x + torch.rand(4, device=x.device)


@harmless
def values_of_the_host() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        lengths = torch.tensor([1, 2, 3])
        return x + (int(lengths.sum()) + lengths.numpy().size + len(str(lengths)))

    return step


@harmless
def object_with_a_query() -> Callable[[Tensor], Any]:
    class Database:
        def query(self) -> int:
            return 1

        def synchronize(self) -> int:
            return self.query()

        def seed(self) -> int:
            return 3

    base = Database()
    return lambda x: x + base.query() + base.synchronize() + base.seed()


@harmless
def chunked() -> Callable[[Tensor], Any]:
    return lambda x: torch.cat(list(reversed(x.chunk(2)))).sort().values.cumsum(0).topk(2).values


@harmless
def copy_into_pinned_memory_that_stays() -> Callable[[Tensor], Any]:
    host = torch.zeros(4).pin_memory()

    def step(x: Tensor) -> Tensor:
        host.copy_(x, non_blocking=True)
        return x + 1

    return step


@harmless
def copy_of_pinned_memory_that_stays() -> Callable[[Tensor], Any]:
    host = torch.zeros(4).pin_memory()
    return lambda x: x + host.to(x.device, non_blocking=True)


@harmless
def made_on_the_device_of_an_argument() -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        rows = torch.arange(4, device=x.device).to(x.device, x.dtype)
        scale = torch.ones(4, device="cpu").to("cpu")
        same = torch.zeros(4, device=rows.device.type) + x.new_zeros(4, device=x.device)
        return x.to(rows.device) + rows + same if scale.is_cpu else x.cpu()

    return step
