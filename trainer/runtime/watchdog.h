#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "spilling/transfer/copier.h"

namespace spillway {

/// Calls a function once, on the thread that runs `io`, when a sign of life is late. Only for that
/// thread. There is a timer only while a sign is expected.
class Watchdog {
 public:
  Watchdog(boost::asio::io_context& io, std::function<void()> on_timeout)
      : timer_(io), on_timeout_(std::move(on_timeout)) {}

  /// Expects a sign within `allowance` from now on; the call itself is one too.
  void expect(Clock::duration allowance);
  /// Expects no sign.
  void rest() { deadline_.reset(); }

 private:
  void sleep();

  boost::asio::steady_timer timer_;
  const std::function<void()> on_timeout_;
  std::optional<Clock::time_point> deadline_;
  bool sleeps_ = false;  ///< until a deadline, which may have moved since
  const std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace spillway
