// One step of a long short-term memory (LSTM), after its matrix products. In float32, rounded once.
//
// Gates are adjacent, in the order [input, forget, candidate, output], the order of torch's weights.

#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kGatesOfCell = 4;
constexpr DtypeSet kTaken{c10::ScalarType::Half, c10::ScalarType::Float};

void RequireCell(const Tensor& state, const Tensor& gates) {
  RequireDtype(gates, kTaken);
  RequireRank(gates, 2, 2);
  RequireSameDtype(state, gates);
  RequireShape(state, {gates.size(0), gates.size(1) / kGatesOfCell});
}

}  // namespace

CANN_SIM_OPERATOR(aclnnThnnFusedLstmCell, (Tensor, inputGates), (Tensor, hiddenGates), (Tensor, cx),
                  (OptionalTensor, inputBiasOptional), (OptionalTensor, hiddenBiasOptional), (Tensor, hyOut),
                  (Tensor, cyOut), (Tensor, storageOut)) {
  RequireCell(cx, inputGates);
  RequireShape(hiddenGates, inputGates.sizes());
  RequireShape(storageOut, inputGates.sizes());
  return [=] {
    at::Tensor gates = inputGates.Widened().add(hiddenGates.Widened());
    for (const OptionalTensor& bias : {inputBiasOptional, hiddenBiasOptional}) {
      gates = bias ? gates.add(bias->Widened()) : gates;
    }
    const std::vector<at::Tensor> parts = gates.chunk(kGatesOfCell, 1);
    const at::Tensor in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]), candidate = at::tanh(parts[2]);
    const at::Tensor output = at::sigmoid(parts[3]);
    const at::Tensor cell = forget.mul(cx.Widened()).add(in.mul(candidate));
    cyOut.Store(cell);
    hyOut.Store(output.mul(at::tanh(cell)));
    storageOut.Store(at::cat({in, forget, candidate, output}, 1));
  };
}

// `storage` has the gates that the forward pass kept.
CANN_SIM_OPERATOR(aclnnThnnFusedLstmCellBackward, (OptionalTensor, gradHyOptional), (OptionalTensor, gradCOptional),
                  (Tensor, cx), (Tensor, cy), (Tensor, storage), (Bool, hasBias), (Tensor, gradGatesOut),
                  (Tensor, gradCxOut), (OptionalTensor, gradBiasOut)) {
  RequireCell(cx, storage);
  RequireCell(cy, storage);
  RequireShape(gradGatesOut, storage.sizes());
  const bool with_bias = hasBias && gradBiasOut;
  return [=] {
    const std::vector<at::Tensor> gates = storage.Widened().chunk(kGatesOfCell, 1);
    const at::Tensor &in = gates[0], &forget = gates[1], &candidate = gates[2], &output = gates[3];
    const at::Tensor squashed = at::tanh(cy.Widened());
    const at::Tensor none = at::zeros_like(squashed);
    const at::Tensor above = gradHyOptional ? gradHyOptional->Widened() : none;
    const at::Tensor direct = gradCOptional ? gradCOptional->Widened() : none;
    const at::Tensor cell = above.mul(output).mul(squashed.square().neg().add(1)).add(direct);
    const auto through_sigmoid = [](const at::Tensor& gradient, const at::Tensor& gate) {
      return gradient.mul(gate).mul(gate.neg().add(1));
    };
    const at::Tensor of_gates =
        at::cat({through_sigmoid(cell.mul(candidate), in), through_sigmoid(cell.mul(cx.Widened()), forget),
                 cell.mul(in).mul(candidate.square().neg().add(1)), through_sigmoid(above.mul(squashed), output)},
                1);
    gradGatesOut.Store(of_gates);
    gradCxOut.Store(cell.mul(forget));
    if (with_bias) {
      gradBiasOut->Store(of_gates.sum(0));
    }
  };
}

}  // namespace cann_sim::operators
