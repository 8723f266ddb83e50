// Memory that is shared with the library: its size, and who may reach which part of it.

#include "memory.hpp"

#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

using ofl::Memory;

namespace {

struct Known final : ofl::Registration {
  std::uint32_t local_key() const noexcept override { return 1; }
  std::uint32_t remote_key() const noexcept override { return 2; }
};

// A device that notes what it was given.
struct Device final : ofl::Registrar {
  ofl::Outcome add(std::span<std::byte> memory, std::unique_ptr<ofl::Registration>& registration) override {
    given.push_back(memory);
    registration = std::make_unique<Known>();
    return {};
  }
  std::vector<std::span<std::byte>> given;
};

}  // namespace

TEST(memory_of_the_librarys_has_the_size_that_was_asked_for_and_no_page_more) {
  for (const std::size_t size : {1UL, 100UL, 4095UL, 4096UL, 4097UL, 1UL << 20}) {
    for (const bool bounce : {false, true}) {
      std::shared_ptr<Memory> memory;
      CHECK(Memory::create(nullptr, size, bounce, memory));
      CHECK(memory->bytes().size() == size && memory->landing().size() == size);
      CHECK(memory->contains(memory->bytes().data(), size));
      CHECK(!memory->contains(memory->bytes().data(), size + 1));
      CHECK(!memory->contains(memory->bytes().data() + size, 1));
      Device device;
      CHECK(memory->register_with(device));
      CHECK(device.given.size() == 1 && device.given[0].size() == size);  // what a peer can write to
    }
  }
}

// A device's memory is absent in children of fork(), as libibverbs has it: what lies there in a child is the child's own.
// The child takes the pages out itself, since an emulator of another architecture need not know MADV_DONTFORK.
TEST(a_child_of_fork_that_lets_go_of_registered_memory_unmaps_nothing_of_its_own) {
  for (const bool bounce : {false, true}) {
    std::shared_ptr<Memory> memory;
    CHECK(Memory::create(nullptr, 8192, bounce, memory));
    Device device;
    CHECK(memory->register_with(device));
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
      void* const place = memory->landing().data();
      if (::munmap(place, 8192) != 0) ::_exit(3);
      if (::mmap(place, 8192, PROT_READ | PROT_WRITE, kFlags, -1, 0) != place) ::_exit(2);
      memory.reset();
      ::_exit(::msync(place, 8192, MS_ASYNC) == 0 ? 0 : 1);  // fails where nothing is mapped
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST(a_stretch_is_claimed_once_whoever_claims_it) {
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 1000, false, memory));
  std::atomic<bool> lost{false};
  ofl::Claim first;
  ofl::Claim second;
  ofl::Claim third;
  CHECK(memory->claim(first, lost, 100, 200) == OFL_OK);
  for (const auto& [offset, bytes] : {std::pair{100UL, 200UL}, {0UL, 101UL}, {299UL, 1UL}, {0UL, 1000UL}, {150UL, 10UL}})
    CHECK(memory->claim(second, lost, offset, bytes) == OFL_OVERLAP);
  CHECK(memory->claim(second, lost, 0, 100) == OFL_OK);
  CHECK(memory->claim(third, lost, 300, 700) == OFL_OK);
  memory->release(second);  // in the middle of the list
  CHECK(memory->claim(second, lost, 99, 2) == OFL_OVERLAP);
  memory->release(first);
  memory->release(first);  // twice is harmless
  CHECK(memory->claim(second, lost, 0, 300) == OFL_OK);
  CHECK(memory->claim(first, lost, 150, 0) == OFL_OK);  // nothing can land in no bytes
  memory->release(third);
  memory->release(second);
  CHECK(memory->claim(third, lost, 0, 1000) == OFL_OK);
  memory->release(third);
}

TEST(a_quarantined_stretch_says_so_until_it_is_released_or_its_connection_is_lost) {
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 1000, false, memory));
  std::atomic<bool> lost{false};
  const std::atomic<bool> alive{false};
  ofl::Claim first;
  ofl::Claim second;
  CHECK(memory->claim(first, lost, 0, 500) == OFL_OK);
  memory->quarantine(first);
  CHECK(memory->claim(second, alive, 499, 1) == OFL_QUARANTINED);
  memory->release(first);
  CHECK(memory->claim(second, alive, 499, 1) == OFL_OK);
  memory->release(second);
  CHECK(memory->claim(first, lost, 0, 500) == OFL_OK);
  CHECK(memory->claim(second, alive, 0, 1000) == OFL_OVERLAP);  // a claim that is made anew is none in quarantine
  memory->quarantine(first);
  lost = true;
  CHECK(memory->claim(second, alive, 0, 1000) == OFL_OK);
  memory->release(first);
  memory->release(second);
}
