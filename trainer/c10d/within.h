#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

namespace spillway {

/// At least a millisecond.
inline std::chrono::milliseconds left_until(std::chrono::steady_clock::time_point end) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
  return std::max(milliseconds(1), left);
}

/// Runs `work`, which owns all that it uses, on a thread of its own: c10d waits without a limit for
/// the answer of a store, and nothing can end that. Throws what `work` throws, and
/// std::runtime_error after `limit`; then the thread stays until `work` ends.
template <typename Work>
auto within(std::chrono::milliseconds limit, Work work) {
  std::packaged_task<std::invoke_result_t<Work&>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) == std::future_status::ready) return result.get();
  throw std::runtime_error(
      fmt::format("no answer within {:g} s", std::chrono::duration<double>(limit).count()));
}

}  // namespace spillway
