// Memory that is shared with the library: its size, and who may reach which part of it.

#include "memory.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

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
