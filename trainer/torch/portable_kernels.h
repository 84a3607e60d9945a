#pragma once

namespace spillway {

/// Makes LibTorch, MKL and oneDNN compute with kernels that give the same bits on every x86-64
/// processor with AVX2 and FMA, instead of the fastest of this one: AVX2 in LibTorch and oneDNN,
/// MKL's reproducible mode COMPATIBLE, and other kernels for operators that MKL computes with
/// approximations of the processor. For the whole process and for ever; cheap to repeat. Throws
/// ConfigError (`numerics`) if the processor lacks these instructions, or if the libraries have
/// chosen kernels before.
void use_portable_kernels();
/// Whether this process does.
bool uses_portable_kernels();

}  // namespace spillway
