// Long short-term memory (LSTM), several layers, one or both directions. In float32, rounded once.
//
// Sequences of different lengths come as [steps * batch, size], longest first, padded; `batchSizes` says how many rows of
// each step there are.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>

#include "../interface/operator.h"
#include "../interface/optional_tensor_list.h"
#include "differentiation.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kGates = 4;

struct Network {
  bool biased, two_way, batch_first;
  int64_t layers;
  std::vector<int64_t> rows_of_step;  // empty where all sequences are equally long

  int64_t directions() const { return two_way ? 2 : 1; }
  size_t parameters() const { return biased ? 4 : 2; }
};

// Each [steps, batch, hidden]: the gates i, j, f and o, the states h and c, tanh(c).
using Steps = std::array<std::vector<at::Tensor>, 7>;
constexpr size_t kHidden = 4;

// One direction of one layer: all its steps, and the states that it ends with.
struct Direction {
  Steps steps;
  at::Tensor h, c;
};

// Over x [steps, batch, size].
Direction Run(const at::Tensor& x, const at::Tensor* parameters, const Network& network, at::Tensor h, at::Tensor c,
          bool backwards) {
  const int64_t steps = x.size(0);
  Steps all;
  for (std::vector<at::Tensor>& of_steps : all) {
    of_steps.resize(static_cast<size_t>(steps));
  }
  for (int64_t count = 0; count < steps; ++count) {
    const int64_t step = backwards ? steps - 1 - count : count;
    const at::Tensor from_input = network.biased ? at::linear(x[step], parameters[0], parameters[2])
                                                 : at::linear(x[step], parameters[0]);
    const at::Tensor from_state = network.biased ? at::linear(h, parameters[1], parameters[3]) : at::linear(h, parameters[1]);
    const std::vector<at::Tensor> gates = from_input.add(from_state).chunk(kGates, -1);
    const at::Tensor in = at::sigmoid(gates[0]), forget = at::sigmoid(gates[1]), candidate = at::tanh(gates[2]);
    const at::Tensor output = at::sigmoid(gates[3]);
    const at::Tensor next_c = forget.mul(c).add(in.mul(candidate)), squashed = at::tanh(next_c);
    const at::Tensor next_h = output.mul(squashed);
    at::Tensor seen = next_h;
    if (network.rows_of_step.empty()) {
      h = next_h;
      c = next_c;
    } else {
      const at::Tensor there = at::arange(x.size(1)).lt(network.rows_of_step[static_cast<size_t>(step)]).unsqueeze(1);
      h = at::where(there, next_h, h);
      c = at::where(there, next_c, c);
      seen = at::where(there, next_h, at::zeros_like(next_h));
    }
    const std::array<at::Tensor, 7> values{in, candidate, forget, output, seen, next_c, squashed};
    for (size_t kind = 0; kind < values.size(); ++kind) {
      all[kind][static_cast<size_t>(step)] = values[kind];
    }
  }
  return {all, h, c};
}

struct Result {
  at::Tensor output, hidden, cell;
  std::vector<Steps> of_layers;
};

// `states` are the first h and c, [layers * directions, batch, hidden] each.
Result Compute(const at::Tensor& input, const std::vector<at::Tensor>& states, const std::vector<at::Tensor>& parameters,
               const Network& network) {
  Result result;
  at::Tensor x = network.batch_first ? input.transpose(0, 1) : input;
  std::vector<at::Tensor> hidden, cell;
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < network.directions(); ++direction) {
      const int64_t place = layer * network.directions() + direction;
      const Direction run = Run(x, &parameters[static_cast<size_t>(place) * network.parameters()], network,
                                states[0][place], states[1][place], direction == 1);
      outputs.push_back(at::stack(run.steps[kHidden]));
      hidden.push_back(run.h);
      cell.push_back(run.c);
      result.of_layers.push_back(run.steps);
    }
    x = at::cat(outputs, -1);
  }
  result.output = network.batch_first ? x.transpose(0, 1) : x;
  result.hidden = at::stack(hidden);
  result.cell = at::stack(cell);
  return result;
}

// The arguments that both operators have.
struct Given {
  Tensor input;
  OptionalTensorList states;
  TensorList parameters;
  OptionalTensor batch_sizes;
  Network network;

  Given(const Tensor& input, const OptionalTensorList& states, const TensorList& parameters,
        const OptionalTensor& batch_sizes, const Bool& biased, const Int& layers, const Double& dropout, const Bool& two_way,
        const Bool& batch_first)
      : input(input), states(states), parameters(parameters), batch_sizes(batch_sizes),
        network{biased, two_way, batch_first && !batch_sizes, layers, {}} {
    const DtypeSet allowed{c10::ScalarType::Half, c10::ScalarType::Float};
    RequireDtype(input, allowed);
    RequireRank(input, batch_sizes ? 2 : 3, batch_sizes ? 2 : 3);
    const size_t expected = network.parameters() * static_cast<size_t>(network.directions() * network.layers);
    if (parameters.size() != expected) {
      RefuseArgument(parameters.name(), std::to_string(expected) + " tensors", std::to_string(parameters.size()));
    }
    for (const OptionalTensor& parameter : parameters) {
      RequireSameDtype(*parameter, input);
    }
    if (dropout != 0.0) {
      RefuseArgument(dropout.name(), "0, as documented", std::to_string(dropout));
    }
  }

  at::Tensor Input() const {
    const at::Tensor wide = input.Widened();
    return batch_sizes ? wide.view({batch_sizes->numel(), -1, wide.size(1)}) : wide;
  }

  // With the lengths, which are in memory of the device.
  Network WithLengths() const {
    Network whole = network;
    if (batch_sizes) {
      const at::Tensor sizes = at::Tensor(*batch_sizes).to(at::kLong).contiguous();
      whole.rows_of_step.assign(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + sizes.numel());
    }
    return whole;
  }

  std::vector<at::Tensor> Parameters() const {
    std::vector<at::Tensor> wide;
    for (const OptionalTensor& parameter : parameters) {
      wide.push_back(parameter->Widened());
    }
    return wide;
  }

  std::vector<at::Tensor> States() const {
    if (states) {
      return {states[0].Widened(), states[1].Widened()};
    }
    const at::Tensor x = Input();
    const at::Tensor zeros = at::zeros({network.layers * network.directions(), x.size(network.batch_first ? 0 : 1),
                                        parameters[1]->size(1)});
    return {zeros, zeros};
  }
};

}  // namespace

CANN_SIM_OPERATOR(aclnnLSTM, (Tensor, input), (TensorList, params), (OptionalTensorList, hx), (OptionalTensor, batchSizes),
                  (Bool, hasBias), (Int, numLayers), (Double, dropout), (Bool, train), (Bool, bidirectional),
                  (Bool, batchFirst), (Tensor, output), (Tensor, hy), (Tensor, cy), (OptionalTensorList, iOut),
                  (OptionalTensorList, jOut), (OptionalTensorList, fOut), (OptionalTensorList, oOut),
                  (OptionalTensorList, hOut), (OptionalTensorList, cOut), (OptionalTensorList, tanhCOut)) {
  const Given given(input, hx, params, batchSizes, hasBias, numLayers, dropout, bidirectional, batchFirst);
  const std::vector<OptionalTensorList> kept{iOut, jOut, fOut, oOut, hOut, cOut, tanhCOut};
  const bool keep = train;
  return [=] {
    const Result result = Compute(given.Input(), given.States(), given.Parameters(), given.WithLengths());
    output.Store(result.output.reshape(output.sizes()));
    hy.Store(result.hidden);
    cy.Store(result.cell);
    if (!keep) {
      return;
    }
    for (size_t kind = 0; kind < kept.size(); ++kind) {
      for (size_t place = 0; place < kept[kind].size(); ++place) {
        kept[kind][place].Store(at::stack(result.of_layers[place][kind]).view(kept[kind][place].sizes()));
      }
    }
  };
}

// The gates and states that the forward pass kept follow from the other arguments.
CANN_SIM_OPERATOR(aclnnLstmBackward, (Tensor, input), (OptionalTensorList, hx), (TensorList, params), (OptionalTensor, dy),
                  (OptionalTensor, dh), (OptionalTensor, dc), (OptionalTensorList, i), (OptionalTensorList, g),
                  (OptionalTensorList, f), (OptionalTensorList, o), (OptionalTensorList, h), (OptionalTensorList, c),
                  (OptionalTensorList, tanhc), (OptionalTensor, batchSizesOptional), (Bool, hasBias), (Int, numLayers),
                  (Double, dropout), (Bool, train), (Bool, bidirectional), (Bool, batchFirst),
                  (OptionalBoolArray, outputMask), (Tensor, dxOut), (Tensor, dhPrevOut), (Tensor, dcPrevOut),
                  (TensorList, dparamsOut)) {
  const Given given(input, hx, params, batchSizesOptional, hasBias, numLayers, dropout, bidirectional, batchFirst);
  if (!dy && !dh && !dc) {
    RefuseArgument(dy.name(), "one of the gradients dy, dh and dc", "none");
  }
  return [=] {
    const Network network = given.WithLengths();
    std::vector<at::Tensor> inputs{given.Input()};
    for (const std::vector<at::Tensor>& more : {given.States(), given.Parameters()}) {
      inputs.insert(inputs.end(), more.begin(), more.end());
    }
    const auto forward = [&](const std::vector<at::Tensor>& all) {
      const Result result = Compute(all[0], {all[1], all[2]}, {all.begin() + 3, all.end()}, network);
      return std::vector<at::Tensor>{result.output, result.hidden, result.cell};
    };
    const auto wide = [](const OptionalTensor& gradient) { return gradient ? gradient->Widened() : at::Tensor(); };
    const std::vector<at::Tensor> found = Gradients(forward, inputs, {wide(dy), wide(dh), wide(dc)});
    dxOut.Store(found[0].reshape(dxOut.sizes()));
    dhPrevOut.Store(found[1]);
    dcPrevOut.Store(found[2]);
    for (size_t place = 0; place < dparamsOut.size(); ++place) {
      dparamsOut[place]->Store(found[3 + place]);
    }
  };
}

}  // namespace cann_sim::operators
