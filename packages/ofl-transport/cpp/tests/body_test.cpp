// Bodies that are kept for reuse, and what a fork() finds of them.

#include "body.hpp"

#include <array>
#include <atomic>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

using ofl::Body;

namespace {

constexpr std::size_t kLarge = 1U << 20;  // such bodies are kept, and so pass through what all threads share

// Four at once, so that most of them find others kept before them.
void take_and_free() {
  std::array<Body, 4> bodies;
  for (Body& body : bodies) body = Body::allocate(kLarge);
}

// 0: the child could free its copy of a body, which is kept there and so not the allocator's business; it has some seconds
// for that.
int child_of_fork(Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    body.memory.reset();
    ::_exit(0);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace

TEST(a_child_frees_a_body_whatever_other_threads_did_at_the_moment_of_the_fork) {
  std::atomic<bool> stop{false};
  std::array<std::thread, 2> others;
  for (std::thread& other : others) {
    other = std::thread([&stop] {
      while (!stop.load(std::memory_order_relaxed)) take_and_free();
    });
  }
  Body body = Body::allocate(kLarge);
  int failed = 0;
  for (int i = 0; i < 200 && failed == 0; ++i) failed = child_of_fork(body);
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& other : others) other.join();
  CHECK(failed == 0);
}
