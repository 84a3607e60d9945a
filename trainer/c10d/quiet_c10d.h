#pragma once

#include <c10/util/Logging.h>

#include <exception>
#include <string>

C10_DECLARE_int(caffe2_log_level);

namespace spillway {

/// Keeps c10d from printing what it also throws, with stacks, while this object exists.
class QuietC10d {
 public:
  QuietC10d() { FLAGS_caffe2_log_level = c10::GLOG_FATAL; }
  QuietC10d(const QuietC10d&) = delete;
  QuietC10d& operator=(const QuietC10d&) = delete;
  ~QuietC10d() { FLAGS_caffe2_log_level = before_; }

 private:
  const int before_ = FLAGS_caffe2_log_level;
};

/// What c10d says, without its stack.
inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace spillway
