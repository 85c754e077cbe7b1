"""Functions of one and two operands."""

from __future__ import annotations

import torch

from operators.operator_case import (
    INTEGERS,
    SINGLE,
    Case,
    Values,
    broadcast,
    elementwise,
    fixed,
)

POSITIVE = Values(low=0.1, high=4.0)
TWO = (Values(), Values())
CROSS = fixed(((2, 3), (2, 3)), ((3, 3, 4), (3, 3, 4)), ((0, 3), (0, 3)), ((3, 3), (1, 3)))


def integers(low: float, high: float) -> Values:
    return Values(low=low, high=high)


CASES = (
    Case(operator="aclnnSinc", call=torch.sinc),
    Case(operator="aclnnInplaceSinc", call=lambda x: x.clone().sinc_()),
    Case(
        operator="aclnnInplaceNanToNum",
        call=lambda x: (x / 0).nan_to_num_(nan=3.0, posinf=5.0, neginf=-7.0),
    ),
    Case(
        operator="aclnnRoundDecimals",
        call=lambda x: torch.round(x * 1024, decimals=-2),
        magnitude=2048,
    ),
    Case(
        operator="aclnnInplaceRoundDecimals",
        call=lambda x: (x.clone() * 1024).round_(decimals=-2),
        magnitude=2048,
    ),
    Case(operator="aclnnAngleV2", call=torch.angle),
    Case(operator="aclnnLogit", call=torch.logit, inputs=(Values(low=0.05, high=0.95),)),
    Case(operator="aclnnLogAddExp", call=torch.logaddexp, inputs=TWO, shapes=broadcast()),
    Case(operator="aclnnLogAddExp2", call=torch.logaddexp2, inputs=TWO, shapes=broadcast()),
    Case(
        operator="aclnnXLogYTensor",
        call=torch.xlogy,
        inputs=(Values(), POSITIVE),
        shapes=broadcast(),
        magnitude=4,
    ),
    Case(operator="aclnnXLogYScalarOther", call=lambda x: torch.xlogy(x, 3.5), magnitude=4),
    Case(
        operator="aclnnInplaceXLogYScalarOther", call=lambda x: x.clone().xlogy_(3.5), magnitude=4
    ),
    Case(
        operator="aclnnXLogYScalarSelf",
        call=lambda y: torch.xlogy(2.5, y),
        inputs=(POSITIVE,),
        magnitude=8,
    ),
    Case(
        operator="aclnnInplaceAtan2", call=lambda x, y: x.clone().atan2_(y), inputs=TWO, magnitude=4
    ),
    Case(
        operator="aclnnInplaceLerp",
        call=lambda x, y, w: x.clone().lerp_(y, w),
        inputs=(Values(), Values(), Values()),
        magnitude=12,
    ),
    Case(
        operator="aclnnInplaceLerps",
        call=lambda x, y: x.clone().lerp_(y, 0.25),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnAddRelu",
        call=lambda x, y: torch._add_relu(x, y, alpha=0.5),
        reference=lambda x, y: torch.relu(x + 0.5 * y),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnInplaceAddRelu",
        call=lambda x, y: torch._VF._add_relu_(x.clone(), y, alpha=0.5),
        reference=lambda x, y: torch.relu(x + 0.5 * y),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnGcd",
        call=torch.gcd,
        inputs=(integers(1, 60), integers(1, 60)),
        shapes=broadcast(),
        dtypes=INTEGERS,
    ),
    Case(
        operator="aclnnLeftShift",
        launched_since=(2, 11),
        call=torch.bitwise_left_shift,
        inputs=(integers(0, 7), integers(0, 3)),
        shapes=broadcast(),
        dtypes=INTEGERS,
    ),
    Case(
        operator="aclnnLeftShifts",
        call=lambda x: x << 2,
        inputs=(integers(0, 7),),
        dtypes=INTEGERS,
    ),
    Case(
        operator="aclnnRightShift",
        launched_since=(2, 11),
        call=torch.bitwise_right_shift,
        inputs=(integers(0, 100), integers(0, 3)),
        dtypes=INTEGERS,
    ),
    Case(
        operator="aclnnComplex",
        call=lambda x, y: torch.view_as_real(torch.complex(x, y)),
        inputs=TWO,
        dtypes=SINGLE,
    ),
    Case(
        operator="aclnnPolar",
        call=lambda x, y: torch.view_as_real(torch.polar(x, y)),
        inputs=(POSITIVE, Values()),
        dtypes=SINGLE,
        magnitude=4,
    ),
    Case(
        operator="aclnnLinalgCross",
        call=lambda x, y: torch.linalg.cross(x, y, dim=1),
        inputs=TWO,
        shapes=CROSS,
        magnitude=8,
    ),
    Case(
        operator="aclnnDivMods",
        call=lambda x: [
            torch.div(x, 0.5, rounding_mode="floor"),
            torch.div(x, -0.5, rounding_mode="trunc"),
        ],
        magnitude=4,
    ),
    Case(operator="aclnnFmodScalar", call=lambda x: torch.fmod(x, -0.75)),
    Case(
        operator="aclnnAddV3",
        call=lambda x: torch.add(torch.tensor(1.5), x, alpha=2),
        shapes=elementwise(),
        magnitude=8,
    ),
)
