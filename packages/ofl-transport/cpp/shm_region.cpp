#include "shm_region.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.hpp"
#include "process.hpp"
#include "shm_atomics.hpp"

namespace ofl {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Field 22 of /proc/self/stat.  The name of the program, which may hold anything, ends with the last ')'.
std::uint64_t own_start_ticks() noexcept {
  const UniqueFd file(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

Outcome refuse(const char* clause) { return failure(OFL_REFUSED, std::string("the shared memory: ") + clause); }

// Before the mapping: with these held, every byte of it stays there.
Outcome check_memory(int memory, std::uint64_t region_bytes) {
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0) return refuse("the descriptor is no memfd");
  if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) return refuse("it is not sealed against another size");
  struct stat facts {};
  if (::fstat(memory, &facts) != 0) return failure(OFL_SYSTEM, "fstat of shared memory: " + errno_text(errno));
  if (static_cast<std::uint64_t>(facts.st_size) != region_bytes) return refuse("its size is not region_bytes");
  return {};
}

// Copies of the peer's words: each is read once.
const char* header_fault(ShmHeader& header, const wire::ShmLinkBody& told) noexcept {
  // Pairs with the release in make: the rest of the header is there when the version is.
  const std::uint64_t version = load_acquire(header.version);
  if (version == 0) return "version is 0: it is not ready";
  if (load_relaxed(header.magic) != kShmMagic) return "magic is not OFL-SHM";
  if (version != kShmVersion) return "version is not 1";
  if (load_relaxed(header.ring_bytes) != told.ring_bytes) return "ring_bytes is not what the link frame said";
  if (load_relaxed(header.region_bytes) != told.region_bytes) return "region_bytes is not what the link frame said";
  // Pairs with introduce.
  const std::uint64_t state = load_acquire(header.server.state);
  if (state != static_cast<std::uint64_t>(ShmState::attached)) return "the server's end is not attached";
  return nullptr;
}

}  // namespace

std::uint64_t choose_ring_bytes(std::uint32_t frame_bytes_max) noexcept {
  const std::uint64_t frames = std::bit_ceil(std::uint64_t{4} * frame_bytes_max);
  return std::clamp<std::uint64_t>(frames, kRingBytesChosenMin, kRingBytesMax);
}

const char* ring_bytes_fault(std::uint64_t ring_bytes) noexcept {
  if (!std::has_single_bit(ring_bytes)) return "ring_bytes is not a power of two";
  if (ring_bytes < kRingBytesMin || ring_bytes > kRingBytesMax) return "ring_bytes is not from 65536 to 1048576";
  return nullptr;
}

Outcome ShmRegion::make(std::uint64_t ring_bytes, ShmRegion& region, UniqueFd& memory) {
  const std::uint64_t bytes = region_bytes_for(ring_bytes);
  memory.reset(::memfd_create("ofl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return failure(OFL_SYSTEM, "memfd_create: " + errno_text(errno));
  const auto size = static_cast<off_t>(bytes);
  // Every page now, not at some later touch of it.
  if (::ftruncate(memory.get(), size) != 0 || ::fallocate(memory.get(), 0, 0, size) != 0)
    return failure(OFL_SYSTEM, "a shm connection needs " + std::to_string(bytes) + " bytes of shared memory (a memfd, " +
                                   "counted as memory of this process or container): " + errno_text(errno));
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return failure(OFL_SYSTEM, "sealing of shared memory: " + errno_text(errno));
  region = ShmRegion();
  region.role_ = Role::server;
  Outcome outcome = region.map(memory.get(), ring_bytes);
  if (!outcome) return outcome;
  region.header_->magic = kShmMagic;
  region.header_->region_bytes = bytes;
  region.header_->ring_bytes = ring_bytes;
  region.introduce();
  store_release(region.header_->version, kShmVersion);  // pairs with header_fault: all of the above is there
  return {};
}

Outcome ShmRegion::attach(const wire::ShmLinkBody& told, const UniqueFd& memory, ShmRegion& region) {
  if (const char* fault = ring_bytes_fault(told.ring_bytes)) return refuse(fault);
  if (told.region_bytes != region_bytes_for(told.ring_bytes)) return refuse("region_bytes does not go with ring_bytes");
  Outcome outcome = check_memory(memory.get(), told.region_bytes);
  if (!outcome) return outcome;
  region = ShmRegion();
  region.role_ = Role::client;
  outcome = region.map(memory.get(), told.ring_bytes);
  if (!outcome) return outcome;
  if (const char* fault = header_fault(*region.header_, told)) {
    region = ShmRegion();
    return refuse(fault);
  }
  region.introduce();
  return {};
}

Outcome ShmRegion::map(int memory, std::uint64_t ring_bytes) {
  const std::size_t bytes = region_bytes_for(ring_bytes);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (base == MAP_FAILED)
    return failure(OFL_SYSTEM, "cannot map " + std::to_string(bytes) + " bytes of shared memory: " + errno_text(errno));
  header_ = static_cast<ShmHeader*>(base);
  ring_bytes_ = ring_bytes;
  return {};
}

void ShmRegion::introduce() {
  ShmEnd& end = ours();
  store_relaxed(end.process, static_cast<std::uint64_t>(::getpid()));
  store_relaxed(end.process_start, own_start_ticks());
  store_relaxed(end.process_nonce, process_nonce());
  store_relaxed(end.heartbeat_ns, static_cast<std::uint64_t>(now_ns()));
  // Pairs with the acquires in header_fault and describe: who we are is there.
  store_release(end.state, static_cast<std::uint64_t>(ShmState::attached));
}

std::string ShmRegion::describe() const {
  std::string text = "shm, rings of " + std::to_string(ring_bytes_) + " bytes";
  ShmEnd& peer = theirs();
  if (load_acquire(peer.state) == static_cast<std::uint64_t>(ShmState::absent)) return text;  // pairs with introduce
  return text + ", process " + std::to_string(load_relaxed(peer.process)) + " started at tick " +
         std::to_string(load_relaxed(peer.process_start));
}

ShmRegion::ShmRegion(ShmRegion&& other) noexcept
    : header_(std::exchange(other.header_, nullptr)), ring_bytes_(other.ring_bytes_), role_(other.role_) {}

ShmRegion& ShmRegion::operator=(ShmRegion&& other) noexcept {
  std::swap(header_, other.header_);
  std::swap(ring_bytes_, other.ring_bytes_);
  std::swap(role_, other.role_);
  return *this;
}

ShmRegion::~ShmRegion() {
  if (header_ != nullptr) ::munmap(header_, region_bytes_for(ring_bytes_));
}

}  // namespace ofl
