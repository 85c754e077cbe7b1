// Steps of optimisers on the older road. They write the parameter and its two moments in place; all in float32, rounded once.

#include <cmath>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// var, m and v come first, and are the results.
struct Moments {
  Tensor var, m, v;

  explicit Moments(const CompiledArguments& call)
      : var(call.Output(0, "var")), m(call.Output(1, "m")), v(call.Output(2, "v")) {
    RequireDtype(var, kFloats);
    for (const Tensor& moment : {m, v}) {
      RequireSameDtype(moment, var);
      RequireShape(moment, var.sizes());
    }
  }
};

double HostNumber(const CompiledArguments& call, size_t index, const char* name) {
  return call.HostInput(index, name).item<double>();
}

// The moments after one more gradient: m + (1 - beta1) * (grad - m), and the same of squares.
at::Tensor Blended(const at::Tensor& moment, const at::Tensor& value, double beta) {
  return moment.add(value.sub(moment), 1 - beta);
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(ApplyAdamD) {
  const Moments moments(call);
  const double beta1_power = HostNumber(call, 3, "beta1_power"), beta2_power = HostNumber(call, 4, "beta2_power");
  const double rate = HostNumber(call, 5, "lr"), beta1 = HostNumber(call, 6, "beta1"), beta2 = HostNumber(call, 7, "beta2");
  const double epsilon = HostNumber(call, 8, "epsilon");
  const Tensor grad = call.Input(9, "grad");
  const bool nesterov = call.Attribute<bool>("use_nesterov", false);
  RequireShape(grad, moments.var.sizes());
  const double step = rate * std::sqrt(1 - beta2_power) / (1 - beta1_power);
  return [=] {
    const at::Tensor gradient = grad.Widened();
    const at::Tensor m = Blended(moments.m.Widened(), gradient, beta1);
    const at::Tensor v = Blended(moments.v.Widened(), gradient.square(), beta2);
    const at::Tensor direction = nesterov ? m.mul(beta1).add(gradient, 1 - beta1) : m;
    moments.var.Store(moments.var.Widened().sub(direction.mul(step).div(v.sqrt().add(epsilon))));
    moments.m.Store(m);
    moments.v.Store(v);
  };
}

CANN_SIM_COMPILED_OPERATOR(ApplyAdamW) {
  const Moments moments(call);
  const double rate = HostNumber(call, 5, "lr"), decay = HostNumber(call, 6, "weight_decay");
  const double beta1 = HostNumber(call, 7, "beta1"), beta2 = HostNumber(call, 8, "beta2"), epsilon = HostNumber(call, 9, "epsilon");
  const double beta1_power = HostNumber(call, 3, "beta1_power") * beta1, beta2_power = HostNumber(call, 4, "beta2_power") * beta2;
  const Tensor grad = call.Input(10, "grad");
  const bool maximize = call.Attribute<bool>("maximize", false);
  RequireShape(grad, moments.var.sizes());
  if (call.Attribute<bool>("amsgrad", false)) {
    RefuseArgument("amsgrad", "false, the only value that the operator takes", "true");
  }
  return [=] {
    const at::Tensor gradient = maximize ? grad.Widened().neg() : grad.Widened();
    const at::Tensor m = Blended(moments.m.Widened(), gradient, beta1);
    const at::Tensor v = Blended(moments.v.Widened(), gradient.square(), beta2);
    const at::Tensor size = v.div(1 - beta2_power).sqrt().add(epsilon);
    moments.var.Store(moments.var.Widened().mul(1 - rate * decay).sub(m.div(size), rate / (1 - beta1_power)));
    moments.m.Store(m);
    moments.v.Store(v);
  };
}

// adam_mode 'adam' clips the gradient and takes the learning rate; 'mbart_adam' takes a step size.
CANN_SIM_COMPILED_OPERATOR(ApplyAdamV2) {
  const Moments moments(call);
  const double rate = HostNumber(call, 3, "lr"), beta1 = HostNumber(call, 4, "beta1"), beta2 = HostNumber(call, 5, "beta2");
  const double epsilon = HostNumber(call, 6, "epsilon");
  const Tensor grad = call.Input(7, "grad");
  const double most = HostNumber(call, 8, "max_grad_norm"), norm = HostNumber(call, 9, "global_grad_norm");
  const double decay = HostNumber(call, 10, "weight_decay");
  const auto mode = call.Attribute<std::string>("adam_mode", "adam");
  RequireShape(grad, moments.var.sizes());
  if (mode != "adam" && mode != "mbart_adam") {
    RefuseArgument("adam_mode", "'adam' or 'mbart_adam'", "'" + mode + "'");
  }
  const bool plain = mode == "adam";
  const double clip = plain && most > 0 && norm > most ? most / norm : 1;
  const double step = plain ? rate : HostNumber(call, 11, "step_size");
  return [=] {
    const at::Tensor gradient = grad.Widened().mul(clip);
    const at::Tensor m = Blended(moments.m.Widened(), gradient, beta1);
    const at::Tensor v = Blended(moments.v.Widened(), gradient.square(), beta2);
    const at::Tensor var = moments.var.Widened();
    moments.var.Store(var.sub(m.div(v.sqrt().add(epsilon)), step).sub(var, rate * decay));
    moments.m.Store(m);
    moments.v.Store(v);
  };
}

}  // namespace cann_sim::operators
