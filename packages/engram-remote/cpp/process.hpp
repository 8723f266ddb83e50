// What belongs to the process as a whole: random numbers, fork detection, threads that leave signals to others.
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

#include <csignal>
#include <pthread.h>

namespace engram {

// 64 random bits from the kernel; never zero.
std::uint64_t random_nonce();

// Rises in the child of every fork().  A handle that remembers another number belongs to the parent.
std::uint32_t fork_generation() noexcept;

// Starts a thread that takes no signals: the interpreter's threads must get them, or Ctrl-C would not end a wait.
// name: at most 15 characters, as the kernel shows it.
template <typename Function>
std::thread start_quiet_thread(const char* name, Function&& function) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::forward<Function>(function));
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace engram
