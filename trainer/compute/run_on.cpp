#include "trainer/compute/run_on.h"

#include <exception>

namespace spillway {

void run_on(Device& device, const std::function<void()>& work) {
  std::exception_ptr failure;
  device.compute().enqueue([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  device.compute().record().wait();
  if (failure) std::rethrow_exception(failure);
  device.check();
}

}  // namespace spillway
