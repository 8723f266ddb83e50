// What belongs to the process as a whole: random numbers, fork detection, threads that leave signals to others.
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

#include <csignal>

namespace ofl {

// 64 random bits from the kernel; never zero.
std::uint64_t random_nonce();

// Drawn once per process: tells peers one life of this process from the next.
std::uint64_t process_nonce();

// Rises in the child of every fork().  A handle that remembers another number belongs to the parent: its threads do
// not exist here, and its sockets are the parent's.
std::uint32_t fork_generation() noexcept;

// CPUs that this process may run on; at least 1.
unsigned usable_cpus() noexcept;

// Starts a thread that takes no signals: the interpreter's threads must get them, or Ctrl-C would not end a wait.
template <typename Function>
std::thread start_quiet_thread(Function&& function) {
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
  return thread;
}

}  // namespace ofl
