#include "trainer/torch/torch_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace spillway {
namespace {

template <typename Function>
Function* function_named(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// LibTorch brings an OpenMP of its own, so its functions are looked up, not linked. Their numbers
/// belong to the calling thread; at::set_num_threads() would set MKL's for the whole process.
void set_openmp_threads(int number) {
  static auto* const set = function_named<void(int)>("omp_set_num_threads");
  if (set) {
    set(number);
  } else {
    at::set_num_threads(number);
  }
}

/// 0: the number of the process. Returns what was set before. Does nothing without MKL.
int set_mkl_threads(int number) {
  static auto* const set = function_named<int(int)>("MKL_Set_Num_Threads_Local");
  return set ? set(number) : 0;
}

}  // namespace

void initialize_torch_thread() {
  at::get_num_threads();  // LibTorch sets this thread's number at the first call
  set_openmp_threads(1);
  set_mkl_threads(1);
}

OneTorchThread::OneTorchThread()
    : callers_(at::get_num_threads()), callers_mkl_(set_mkl_threads(1)) {
  set_openmp_threads(1);
}

OneTorchThread::~OneTorchThread() {
  set_openmp_threads(callers_);
  set_mkl_threads(callers_mkl_);
}

}  // namespace spillway
