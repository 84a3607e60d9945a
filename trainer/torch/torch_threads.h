#pragma once

namespace spillway {

/// Call on each computing thread of our own before its first operation: from then on it computes
/// on one thread, because CPU reductions give other bits with another number of threads. Other
/// threads keep the numbers that they have, whatever the process sets. Cheap to repeat.
void initialize_torch_thread();

/// While it lives, a thread of the caller computes on one thread.
class OneTorchThread {
 public:
  OneTorchThread();
  ~OneTorchThread();
  OneTorchThread(const OneTorchThread&) = delete;
  OneTorchThread& operator=(const OneTorchThread&) = delete;

 private:
  int callers_;      ///< threads of OpenMP
  int callers_mkl_;  ///< 0: the number of the process
};

}  // namespace spillway
