"""Matrix functions, factorisations and distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from operators.operator_case import SINGLE, Case, Values, fixed

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHED = fixed(((3, 5), (2, 3, 4), (2, 4, 5)), ((1, 1), (1, 1, 1), (1, 1, 1)))
VECTORS = fixed(((3,), (3, 4), (4,)), ((1,), (1, 1), (1,)), ((5,), (5, 2), (2,)))
OUTER = fixed(((3, 4), (3,), (4,)), ((1, 1), (1,), (1,)))
SQUARE = fixed(((3, 3),), ((2, 4, 4),), ((1, 1),))
RECTANGLES = fixed(((3, 3),), ((2, 4, 3),), ((1, 1),), ((2, 5),))
ATEN: Any = torch.ops.aten
THREE = (Values(), Values(), Values())


def well_conditioned(matrix: torch.Tensor) -> torch.Tensor:
    """Return symmetric positive definite matrices with small condition numbers."""
    identity = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    return matrix @ matrix.transpose(-1, -2) / matrix.size(-1) + 2 * identity


def rebuilt(matrix: torch.Tensor) -> Any:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left.cpu() @ (values.cpu().unsqueeze(-1) * right.cpu())


def triangles(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the product of the factors and the squares of R, which do not depend on signs."""
    q, r = torch.linalg.qr(matrix)
    return q.cpu() @ r.cpu(), r.cpu().square()


def solved(matrix: torch.Tensor, right: torch.Tensor) -> Any:
    factor = torch.linalg.cholesky(well_conditioned(matrix.cpu())).to(matrix.device)
    return torch.linalg.solve_triangular(factor, right, upper=False)


def distance_gradient(power: float) -> Callable[..., torch.Tensor]:
    """Return the gradient of distances, which are made of rounded values on either device."""

    def gradient(a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        wide = [values.cpu().double() for values in (a, b)]
        # The same distances, rounded as a device has them.
        distance = torch.cdist(wide[0], wide[1], power).bfloat16().to(a)
        result: torch.Tensor = ATEN._cdist_backward(grad, a, b, power, distance)
        return result

    return gradient


CASES = (
    Case(
        operator="aclnnAddmv",
        call=lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=2),
        inputs=THREE,
        shapes=VECTORS,
        magnitude=64,
    ),
    Case(
        operator="aclnnAddbmm",
        call=lambda c, a, b: torch.addbmm(c, a, b, beta=0.5, alpha=2),
        inputs=THREE,
        shapes=BATCHED,
        magnitude=128,
    ),
    Case(
        operator="aclnnAddr",
        call=lambda c, a, b: torch.addr(c, a, b, beta=0.5, alpha=2),
        inputs=THREE,
        shapes=OUTER,
        magnitude=16,
    ),
    Case(
        operator="aclnnInplaceAddr",
        call=lambda c, a, b: c.clone().addr_(a, b, beta=0.5, alpha=2),
        inputs=THREE,
        shapes=OUTER,
        magnitude=16,
    ),
    Case(
        operator="aclnnTrace",
        call=torch.trace,
        shapes=fixed(((3, 4),), ((1, 1),), ((0, 2),)),
        magnitude=8,
    ),
    Case(
        operator="aclnnInverse",
        call=lambda a: torch.inverse(well_conditioned(a.cpu()).to(a.device)),
        shapes=SQUARE,
        dtypes=SINGLE,
        ulps=256,
    ),
    Case(
        operator="aclnnLinalgCholesky",
        call=lambda a: torch.linalg.cholesky(well_conditioned(a.cpu()).to(a.device)),
        shapes=SQUARE,
        dtypes=SINGLE,
        ulps=256,
    ),
    Case(
        operator="aclnnSlogdet",
        call=lambda a: torch.slogdet(well_conditioned(a.cpu()).to(a.device)),
        shapes=SQUARE,
        dtypes=SINGLE,
        ulps=256,
    ),
    Case(
        operator="aclnnLinalgQr",
        call=triangles,
        shapes=RECTANGLES,
        dtypes=SINGLE,
        ulps=256,
        magnitude=16,
    ),
    Case(
        operator="aclnnSvd", call=rebuilt, shapes=RECTANGLES, dtypes=SINGLE, ulps=256, magnitude=16
    ),
    Case(
        operator="aclnnTriangularSolve",
        call=solved,
        inputs=(Values(), Values()),
        shapes=fixed(((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1)), ((1, 1), (1, 1))),
        dtypes=SINGLE,
        ulps=256,
    ),
    Case(
        operator="aclnnCdist",
        call=lambda a, b: torch.cdist(a, b, p=1.0),
        inputs=(Values(), Values()),
        shapes=fixed(((3, 4), (5, 4)), ((2, 1, 3), (2, 4, 3)), ((1, 1), (1, 1))),
        magnitude=16,
    ),
    *(
        Case(
            operator="aclnnCdistBackward",
            call=distance_gradient(power),
            inputs=(Values(), Values(), Values()),
            shapes=fixed(((3, 4), (5, 4), (3, 5)), ((2, 1, 3), (2, 4, 3), (2, 1, 4))),
            ulps=512,
            magnitude=64,
        )
        for power in (2.5, 3.0)
    ),
    Case(
        operator="aclnnPdist",
        dtypes=(torch.float16, torch.float32),
        call=lambda a: torch.pdist(a, p=1.0),
        shapes=fixed(((4, 3),), ((2, 1),)),
        magnitude=16,
    ),
)
