// Functions that jump to where a deferred library defines them. Whoever includes this file gives, in one asm statement, the
// line `CANN_SIM_TRAMPOLINE_MACROS` and then `CANN_SIM_TRAMPOLINE(name)` for each function, in the order of a table of its own,
// and defines with C linkage and hidden visibility
//
//   void* cann_sim_targets[];                 // by number in that order; null until it is known
//   void* cann_sim_target(unsigned number);   // what to call now where it is not; throws nothing
//
// A trampoline has no frame and keeps every register and the stack that carry arguments, so that it serves any signature.
#pragma once

#define CANN_SIM_TRAMPOLINE(NAME) "cann_sim_trampoline " #NAME "\n"

#if defined(__x86_64__)

// System V ABI: six integer registers and eight vector registers carry arguments; r11 is free.
#define CANN_SIM_TRAMPOLINE_MACROS                         \
  ".text\n"                                                \
  ".type cann_sim_first_call, @function\n"                 \
  "cann_sim_first_call:\n"                                 \
  "  pushq %rbp\n"                                         \
  "  movq %rsp, %rbp\n"                                    \
  "  subq $176, %rsp\n"                                    \
  "  movq %rdi, (%rsp)\n"                                  \
  "  movq %rsi, 8(%rsp)\n"                                 \
  "  movq %rdx, 16(%rsp)\n"                                \
  "  movq %rcx, 24(%rsp)\n"                                \
  "  movq %r8, 32(%rsp)\n"                                 \
  "  movq %r9, 40(%rsp)\n"                                 \
  "  movups %xmm0, 48(%rsp)\n"                             \
  "  movups %xmm1, 64(%rsp)\n"                             \
  "  movups %xmm2, 80(%rsp)\n"                             \
  "  movups %xmm3, 96(%rsp)\n"                             \
  "  movups %xmm4, 112(%rsp)\n"                            \
  "  movups %xmm5, 128(%rsp)\n"                            \
  "  movups %xmm6, 144(%rsp)\n"                            \
  "  movups %xmm7, 160(%rsp)\n"                            \
  "  movl %r11d, %edi\n"                                   \
  "  call cann_sim_target\n"                               \
  "  movq %rax, %r11\n"                                    \
  "  movq (%rsp), %rdi\n"                                  \
  "  movq 8(%rsp), %rsi\n"                                 \
  "  movq 16(%rsp), %rdx\n"                                \
  "  movq 24(%rsp), %rcx\n"                                \
  "  movq 32(%rsp), %r8\n"                                 \
  "  movq 40(%rsp), %r9\n"                                 \
  "  movups 48(%rsp), %xmm0\n"                             \
  "  movups 64(%rsp), %xmm1\n"                             \
  "  movups 80(%rsp), %xmm2\n"                             \
  "  movups 96(%rsp), %xmm3\n"                             \
  "  movups 112(%rsp), %xmm4\n"                            \
  "  movups 128(%rsp), %xmm5\n"                            \
  "  movups 144(%rsp), %xmm6\n"                            \
  "  movups 160(%rsp), %xmm7\n"                            \
  "  leave\n"                                              \
  "  jmp *%r11\n"                                          \
  ".size cann_sim_first_call, .-cann_sim_first_call\n"     \
  ".set cann_sim_number, 0\n"                              \
  ".macro cann_sim_trampoline name\n"                      \
  ".globl \\name\n"                                        \
  ".type \\name, @function\n"                              \
  "\\name:\n"                                              \
  "  movq cann_sim_targets+8*cann_sim_number(%rip), %r11\n" \
  "  testq %r11, %r11\n"                                   \
  "  je 1f\n"                                              \
  "  jmp *%r11\n"                                          \
  "1: movl $cann_sim_number, %r11d\n"                      \
  "  jmp cann_sim_first_call\n"                            \
  ".size \\name, .-\\name\n"                               \
  ".set cann_sim_number, cann_sim_number+1\n"              \
  ".endm\n"

#elif defined(__aarch64__)

// AAPCS64: x0 to x8 and q0 to q7 carry arguments; x16 and x17 are free.
#define CANN_SIM_TRAMPOLINE_MACROS                         \
  ".text\n"                                                \
  ".type cann_sim_first_call, %function\n"                 \
  "cann_sim_first_call:\n"                                 \
  "  stp x29, x30, [sp, #-224]!\n"                         \
  "  mov x29, sp\n"                                        \
  "  stp x0, x1, [sp, #16]\n"                              \
  "  stp x2, x3, [sp, #32]\n"                              \
  "  stp x4, x5, [sp, #48]\n"                              \
  "  stp x6, x7, [sp, #64]\n"                              \
  "  str x8, [sp, #80]\n"                                  \
  "  stp q0, q1, [sp, #96]\n"                              \
  "  stp q2, q3, [sp, #128]\n"                             \
  "  stp q4, q5, [sp, #160]\n"                             \
  "  stp q6, q7, [sp, #192]\n"                             \
  "  mov w0, w16\n"                                        \
  "  bl cann_sim_target\n"                                 \
  "  mov x16, x0\n"                                        \
  "  ldp x0, x1, [sp, #16]\n"                              \
  "  ldp x2, x3, [sp, #32]\n"                              \
  "  ldp x4, x5, [sp, #48]\n"                              \
  "  ldp x6, x7, [sp, #64]\n"                              \
  "  ldr x8, [sp, #80]\n"                                  \
  "  ldp q0, q1, [sp, #96]\n"                              \
  "  ldp q2, q3, [sp, #128]\n"                             \
  "  ldp q4, q5, [sp, #160]\n"                             \
  "  ldp q6, q7, [sp, #192]\n"                             \
  "  ldp x29, x30, [sp], #224\n"                           \
  "  br x16\n"                                             \
  ".size cann_sim_first_call, .-cann_sim_first_call\n"     \
  ".set cann_sim_number, 0\n"                              \
  ".macro cann_sim_trampoline name\n"                      \
  ".globl \\name\n"                                        \
  ".type \\name, %function\n"                              \
  "\\name:\n"                                              \
  "  adrp x16, cann_sim_targets+8*cann_sim_number\n"       \
  "  ldr x16, [x16, :lo12:cann_sim_targets+8*cann_sim_number]\n" \
  "  cbz x16, 1f\n"                                        \
  "  br x16\n"                                             \
  "1: mov w16, #cann_sim_number\n"                         \
  "  b cann_sim_first_call\n"                              \
  ".size \\name, .-\\name\n"                               \
  ".set cann_sim_number, cann_sim_number+1\n"              \
  ".endm\n"

#else
#error "cann-sim jumps to operators on x86-64 and aarch64 only"
#endif
