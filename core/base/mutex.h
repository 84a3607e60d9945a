#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

/// Annotations of mutexes, checked by clang's -Wthread-safety; other compilers ignore them. The
/// macros are those of clang's documentation, "Thread Safety Analysis".
#ifdef __clang__
#define SPILLWAY_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SPILLWAY_THREAD_ANNOTATION(x)
#endif

/// For members: read and written only while this mutex is locked.
#define SPILLWAY_GUARDED_BY(mutex) SPILLWAY_THREAD_ANNOTATION(guarded_by(mutex))
/// For functions and lambdas: the caller has locked this mutex.
#define SPILLWAY_REQUIRES(...) SPILLWAY_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// For functions: they lock this mutex, so the caller must not hold it.
#define SPILLWAY_EXCLUDES(...) SPILLWAY_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SPILLWAY_ACQUIRE(...) SPILLWAY_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SPILLWAY_RELEASE(...) SPILLWAY_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
/// For functions that the analysis cannot check; explain in a comment there why they are correct.
#define SPILLWAY_NO_THREAD_SAFETY_ANALYSIS SPILLWAY_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace spillway {

/// std::mutex, annotated.
class SPILLWAY_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() SPILLWAY_ACQUIRE() { mutex_.lock(); }
  void unlock() SPILLWAY_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a mutex until the end of its scope.
class SPILLWAY_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SPILLWAY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() SPILLWAY_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for Mutex. A predicate that reads guarded members is a lambda with
/// SPILLWAY_REQUIRES(mutex).
class CondVar {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  template <typename Predicate>
  void wait(Mutex& mutex, Predicate predicate) SPILLWAY_REQUIRES(mutex) {
    changed_.wait(mutex, std::move(predicate));
  }
  /// Or until `stop` is requested. Returns the predicate's last value, like the waits below.
  template <typename Predicate>
  bool wait(Mutex& mutex, const std::stop_token& stop, Predicate predicate)
      SPILLWAY_REQUIRES(mutex) {
    return changed_.wait(mutex, stop, std::move(predicate));
  }
  template <typename Duration, typename Predicate>
  bool wait_for(Mutex& mutex, Duration duration, Predicate predicate) SPILLWAY_REQUIRES(mutex) {
    return changed_.wait_for(mutex, duration, std::move(predicate));
  }
  template <typename Time, typename Predicate>
  bool wait_until(Mutex& mutex, const std::stop_token& stop, Time time, Predicate predicate)
      SPILLWAY_REQUIRES(mutex) {
    return changed_.wait_until(mutex, stop, time, std::move(predicate));
  }

 private:
  std::condition_variable_any changed_;
};

}  // namespace spillway
