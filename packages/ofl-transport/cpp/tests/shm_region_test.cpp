// The shared region: what its maker promises, and what the other end refuses, by name.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "process.hpp"
#include "shm_region.hpp"

using namespace ofl;

namespace {

constexpr std::uint64_t kRing = kRingBytesMin;
constexpr wire::ShmLinkBody kTold{kRing, region_bytes_for(kRing)};

// A good region and the view of somebody who may write what he likes into it.
class Made {
 public:
  explicit Made(std::uint64_t ring_bytes = kRing) {
    const Outcome outcome = ShmRegion::make(ring_bytes, region, memory);
    CHECK(outcome.status == OFL_OK);
    view_bytes_ = region_bytes_for(ring_bytes);
    view_ = ::mmap(nullptr, view_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    CHECK(view_ != MAP_FAILED);
  }
  ~Made() { ::munmap(view_, view_bytes_); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  ShmHeader& header() noexcept { return *static_cast<ShmHeader*>(view_); }

  ShmRegion region;
  UniqueFd memory;

 private:
  void* view_ = nullptr;
  std::size_t view_bytes_ = 0;
};

bool refuses(const UniqueFd& memory, const char* words, const wire::ShmLinkBody& told = kTold) {
  ShmRegion region;
  const Outcome outcome = ShmRegion::attach(told, memory, region);
  const bool named = outcome.status == OFL_REFUSED && outcome.text.find(words) != std::string::npos;
  if (!named) std::printf("status %d: %s\n", static_cast<int>(outcome.status), outcome.text.c_str());
  return named;
}

UniqueFd memfd(std::uint64_t bytes, int seals) {
  UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) CHECK(::fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
  return memory;
}

}  // namespace

TEST(both_ends_of_a_region_see_the_same_memory_and_each_other) {
  Made made;
  ShmRegion client;
  CHECK(ShmRegion::attach(kTold, made.memory, client).status == OFL_OK);
  made.region.outgoing()[5] = std::byte{42};
  CHECK(client.incoming()[5] == std::byte{42});
  client.outgoing()[kRing - 1] = std::byte{43};
  CHECK(made.region.incoming()[kRing - 1] == std::byte{43});
  CHECK(made.region.incoming().size() == kRing && client.outgoing().size() == kRing);
  for (const ShmEnd* end : {&made.region.theirs(), &client.theirs()}) {
    CHECK(end->process == static_cast<std::uint64_t>(::getpid()));
    CHECK(end->process_start != 0);
    CHECK(end->process_nonce == process_nonce());
    CHECK(end->state == static_cast<std::uint64_t>(ShmState::attached));
  }
  CHECK(&made.region.ours() != &made.region.theirs());
  CHECK(client.describe().find("process " + std::to_string(::getpid())) != std::string::npos);
}

TEST(the_start_of_a_process_is_told_in_ticks_after_boot) {
  Made made;
  timespec up{};
  ::clock_gettime(CLOCK_BOOTTIME, &up);
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  const auto now = static_cast<std::uint64_t>(up.tv_sec + 1) * ticks;
  const std::uint64_t start = made.region.ours().process_start;
  CHECK(start > 0 && start <= now);
  CHECK(now - start < 3600 * ticks);  // this program began within the last hour
}

TEST(a_region_is_whole_and_keeps_its_size) {
  Made made;
  struct stat facts {};
  CHECK(::fstat(made.memory.get(), &facts) == 0);
  CHECK(static_cast<std::uint64_t>(facts.st_size) == kTold.region_bytes);
  CHECK(static_cast<std::uint64_t>(facts.st_blocks) * 512 >= kTold.region_bytes);
  CHECK(::ftruncate(made.memory.get(), 4096) != 0 && errno == EPERM);
  CHECK(::ftruncate(made.memory.get(), 1 << 24) != 0 && errno == EPERM);
  CHECK(::fcntl(made.memory.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK((::fcntl(made.memory.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(memory_that_could_shrink_is_refused) {
  CHECK(refuses(memfd(kTold.region_bytes, 0), "not sealed"));
  CHECK(refuses(memfd(kTold.region_bytes, F_SEAL_GROW), "not sealed"));
  CHECK(refuses(memfd(kTold.region_bytes, F_SEAL_SHRINK), "not sealed"));
}

TEST(memory_of_another_size_than_told_is_refused) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4096}, kTold.region_bytes - 1, kTold.region_bytes + 1})
    CHECK(refuses(memfd(bytes, kSeals), "size is not region_bytes"));
}

TEST(a_descriptor_that_is_no_memfd_is_refused) {
  CHECK(refuses(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), "no memfd"));
  CHECK(refuses(UniqueFd(), "no memfd"));
}

TEST(sizes_that_no_region_has_are_refused_before_anything_is_mapped) {
  Made made;
  const struct {
    wire::ShmLinkBody told;
    const char* words;
  } cases[] = {
      {{0, region_bytes_for(0)}, "ring_bytes is not a power of two"},
      {{kRing + 1, region_bytes_for(kRing + 1)}, "ring_bytes is not a power of two"},
      {{kRingBytesMin / 2, region_bytes_for(kRingBytesMin / 2)}, "ring_bytes is not from"},
      {{kRingBytesMax * 2, region_bytes_for(kRingBytesMax * 2)}, "ring_bytes is not from"},
      {{std::uint64_t{1} << 63, kShmHeaderBytes}, "ring_bytes is not from"},
      {{kRing, kTold.region_bytes + 1}, "region_bytes does not go with ring_bytes"},
      {{kRing * 2, region_bytes_for(kRing * 2)}, "size is not region_bytes"},
  };
  for (const auto& [told, words] : cases) CHECK(refuses(made.memory, words, told));
}

TEST(a_header_is_refused_for_each_field_that_is_wrong) {
  const struct {
    void (*spoil)(ShmHeader&);
    const char* words;
  } cases[] = {
      {[](ShmHeader& header) { header.version = 0; }, "version is 0"},
      {[](ShmHeader& header) { header.version = kShmVersion + 1; }, "version is not"},
      {[](ShmHeader& header) { header.magic ^= 1; }, "magic"},
      {[](ShmHeader& header) { header.ring_bytes *= 2; }, "ring_bytes"},
      {[](ShmHeader& header) { header.region_bytes -= 1; }, "region_bytes"},
      {[](ShmHeader& header) { header.server.state = 0; }, "not attached"},
      {[](ShmHeader& header) { header.server.state = static_cast<std::uint64_t>(ShmState::closed); }, "not attached"},
  };
  for (const auto& [spoil, words] : cases) {
    Made made;
    spoil(made.header());
    CHECK(refuses(made.memory, words));
    CHECK(made.header().client.state == static_cast<std::uint64_t>(ShmState::absent));
  }
}

TEST(too_little_memory_is_told_with_what_is_needed) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ShmRegion region;
    UniqueFd memory;
    const Outcome outcome = ShmRegion::make(kRing, region, memory);
    const bool told = outcome.status == OFL_SYSTEM &&
                      outcome.text.find(std::to_string(kTold.region_bytes) + " bytes of shared memory") != std::string::npos;
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
}

TEST(the_size_of_the_rings_follows_the_frames) {
  CHECK(choose_ring_bytes(1024) == 4 * kRingBytesMin);
  CHECK(choose_ring_bytes(100'000) == 1U << 19);
  CHECK(choose_ring_bytes(13'000'000) == kRingBytesMax);
  CHECK(choose_ring_bytes(wire::kFrameBytesMax) == kRingBytesMax);
  for (const std::uint64_t bytes : {choose_ring_bytes(1024), choose_ring_bytes(100'000), choose_ring_bytes(1U << 30)})
    CHECK(ring_bytes_fault(bytes) == nullptr);
}

TEST(what_an_end_leaves_the_other_keeps) {
  ShmRegion client;
  {
    Made made;
    CHECK(ShmRegion::attach(kTold, made.memory, client).status == OFL_OK);
    made.region.outgoing()[7] = std::byte{7};
  }
  CHECK(client.incoming()[7] == std::byte{7});
}
