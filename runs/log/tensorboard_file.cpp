#include "runs/log/tensorboard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <system_error>

#include "runs/log/lines.h"
#include "spillway/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".spillway";

std::string little_endian(std::uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// A message in the encoding of protocol buffers.
/// Source: "Protocol Buffers Documentation, Encoding".
class Message {
 public:
  Message& number(int field, std::int64_t value) {
    key(field, 0);
    return varint(static_cast<std::uint64_t>(value));
  }
  Message& real(int field, double value) {
    key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, double value) {
    key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)), 4);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) {
    varint(static_cast<std::uint64_t>(field) * 8 + static_cast<std::uint64_t>(type));
  }
  Message& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }

  std::string bytes_;
};

/// google.protobuf.Value of a swept value: a number, a truth value or a text.
Message value_message(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return Message().real(2, number);
  if (text == "true" || text == "false") return Message().number(4, text == "true" ? 1 : 0);
  return Message().text(3, text);
}

/// tensorboard.hparams.SessionStartInfo. Sessions of one group name are one row of the table, so
/// each trial has its own.
Message start_info(const TensorboardTrial& trial) {
  Message info;
  for (const auto& [key, value] : trial.parameters)
    info.message(1, Message().text(1, key).message(2, value_message(value)));
  return info.text(4, trial.name).real(5, trial.begin_s);
}

/// A tensorflow.Event with a summary that has no value, but data of the HParams plugin.
Message hparams_summary(const char* tag, int field, const Message& info) {
  const Message content = Message().number(1, 0).message(field, info);
  const Message plugin = Message().text(1, "hparams").message(2, content);
  const Message no_values =
      Message().number(1, 1).message(2, Message().message(2, Message().number(1, 0)));
  const Message value =
      Message().text(1, tag).message(9, Message().message(1, plugin)).message(8, no_values);
  return Message().message(5, Message().message(1, value));
}

fs::path new_file(const fs::path& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return folder / fmt::format("{}{:010}.{:06}{}", kPrefix, us / 1'000'000, us % 1'000'000, kSuffix);
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_file = fs::is_regular_file(fs::symlink_status(entry.path(), error));
    if (is_file && name.starts_with(kPrefix) && name.ends_with(kSuffix))
      files.push_back(entry.path());
  }
  return files;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::string tfrecord(std::string_view payload) {
  const auto masked = [](std::string_view bytes) {
    return little_endian(std::rotr(crc32c(bytes), 15) + 0xA282EAD8u, 4);
  };
  const std::string length = little_endian(payload.size(), 8);
  return length + masked(length) + std::string(payload) + masked(payload);
}

void remove_tensorboard_files(const fs::path& folder) {
  for (const fs::path& file : files_in(folder)) {
    if (::unlink(file.c_str()) != 0) throw IoError("cannot remove", file, errno);
  }
}

TensorboardFile::TensorboardFile(fs::path folder, TensorboardTrial trial)
    : folder_(std::move(folder)), trial_(std::move(trial)) {
  restart();
}

void TensorboardFile::restart() {
  path_.clear();
  pending_.clear();
  time_s_ = 0;
  add_event(0, 0, Message().text(3, "brain.Event:2").bytes());
  // SessionLog START: what earlier files have from step 0 on no longer counts.
  add_event(0, 0, Message().message(7, Message().number(1, 1)).bytes());
  if (!trial_.parameters.empty()) {
    add_event(0, 0, hparams_summary("_hparams_/session_start_info", 3, start_info(trial_)).bytes());
  }
}

void TensorboardFile::add_event(double time_s, std::int64_t step, std::string_view content) {
  const std::string head = Message().real(1, trial_.begin_s + time_s).number(2, step).bytes();
  pending_ += tfrecord(head + std::string(content));
}

void TensorboardFile::add(const StepMetrics& row) {
  time_s_ = row.time_s.value_or(time_s_);
  Message summary;
  const auto put = [&](const std::string& tag, const std::optional<double>& value) {
    if (value) summary.message(1, Message().text(1, tag).real32(2, *value));
  };
  put("train/loss", row.loss);
  put("train/learning_rate", row.learning_rate);
  put("train/grad_norm", row.gradient_norm);
  put("train/tokens_per_s", row.tokens_per_s);
  put("eval/loss", row.eval_loss);
  for (const auto& [name, value] : row.metrics) put("eval/" + name, value);
  add_event(time_s_, row.step, Message().message(5, summary).bytes());
}

void TensorboardFile::end(TrialState state) {
  if (!is_final(state) || trial_.parameters.empty()) return;
  constexpr int kSuccess = 1, kFailure = 2;
  const Message info = Message()
                           .number(1, state == TrialState::failed ? kFailure : kSuccess)
                           .real(2, trial_.begin_s + time_s_);
  add_event(time_s_, 0, hparams_summary("_hparams_/session_end_info", 4, info).bytes());
}

void TensorboardFile::flush() {
  if (pending_.empty()) return;
  const bool is_new = path_.empty();
  if (is_new) {
    for (const fs::path& earlier : files_in(folder_)) append_to(earlier, "", O_TRUNC);
    path_ = new_file(folder_);
  }
  append_to(path_, pending_, is_new ? O_CREAT | O_EXCL : 0);
  pending_.clear();
}

}  // namespace spillway
