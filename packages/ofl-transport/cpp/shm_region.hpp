// The memory that two processes of one host share for one connection: its layout, how it is made, and how the other end
// judges it before use.  Owns the mapping, not the traffic; after `attach` nothing in it can be taken away (no SIGBUS),
// because the memory is sealed against shrinking.
//
// docs/transport/shm.md has the same layout in words.  Every word is written by one end only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "link.hpp"
#include "socket.hpp"
#include "status.hpp"
#include "wire.hpp"

namespace ofl {

inline constexpr std::uint64_t kShmMagic = 0x004D48532D4C464F;  // the bytes "OFL-SHM\0"
inline constexpr std::uint64_t kShmVersion = 1;
inline constexpr std::size_t kShmHeaderBytes = 4096;
inline constexpr std::size_t kApartBytes = 128;  // hot words of different writers: two lines, which CPUs fetch in pairs

// Of one direction.  The smallest holds a few large pieces; a larger one than the largest gains nothing measurable, and
// both rings of one connection should stay in a core's second-level cache.
inline constexpr std::size_t kRingBytesMin = 1U << 16;
inline constexpr std::size_t kRingBytesMax = 1U << 20;
inline constexpr std::size_t kRingBytesChosenMin = 4 * kRingBytesMin;  // of what this end asks for

enum class ShmState : std::uint64_t { absent = 0, attached = 1, closed = 2 };

// What one end writes, and the other only reads.
struct ShmEnd {
  // Who this is: written before `state` becomes attached.
  std::uint64_t process;        // its number, as the process itself sees it
  std::uint64_t process_start;  // clock ticks after boot, from /proc/self/stat; 0: unknown.  Tells a reused number
  std::uint64_t process_nonce;  // random, one per life of the process
  std::uint64_t heartbeat_ns;   // CLOCK_MONOTONIC when this end last looked for a hang-up or went to sleep; for people
  std::uint64_t reserved[12];
  // How far it has read the ring that comes to it.
  std::uint64_t taken;
  std::uint64_t reserved_2[15];
  // What the other end reads after it wrote.
  std::uint64_t sleeps;       // raised before every sleep
  std::uint64_t room_wanted;  // not 0: a send is blocked until the peer has taken that much of the ring that leaves here
  std::uint64_t state;        // ShmState
  std::uint64_t reserved_3[13];
};

struct ShmHeader {
  // The maker's, never changed.
  std::uint64_t magic;
  std::uint64_t region_bytes;
  std::uint64_t ring_bytes;    // of each direction, a power of two
  std::uint64_t reserved[12];
  std::uint64_t version;  // published last: not 0 means that all of the header stands
  ShmEnd server;
  ShmEnd client;
  std::byte reserved_2[kShmHeaderBytes - kApartBytes - 2 * sizeof(ShmEnd)];
  // Then the ring from client to server, then the ring from server to client.
};

static_assert(wire::kPlain<ShmEnd, 3 * kApartBytes>);
static_assert(offsetof(ShmEnd, taken) == kApartBytes && offsetof(ShmEnd, sleeps) == 2 * kApartBytes);
static_assert(wire::kPlain<ShmHeader, kShmHeaderBytes>);
static_assert(offsetof(ShmHeader, version) == 120);
static_assert(offsetof(ShmHeader, server) == kApartBytes && offsetof(ShmHeader, client) == 4 * kApartBytes);

inline constexpr std::uint64_t region_bytes_for(std::uint64_t ring_bytes) noexcept {
  return kShmHeaderBytes + 2 * ring_bytes;
}

// What suits frames of that size.
std::uint64_t choose_ring_bytes(std::uint32_t frame_bytes_max) noexcept;
// Peer input: a clause that names the field, or nullptr.
const char* ring_bytes_fault(std::uint64_t ring_bytes) noexcept;

class ShmRegion {
 public:
  // The server's: new memory, whole and sealed, with its own end attached.  `memory` is for the peer.
  static Outcome make(std::uint64_t ring_bytes, ShmRegion& region, UniqueFd& memory);
  // The client's: judges what the server passed, maps it, and attaches its own end.
  static Outcome attach(const wire::ShmLinkBody& told, const UniqueFd& memory, ShmRegion& region);

  ShmRegion() noexcept = default;
  ~ShmRegion();  // unmaps, and writes nothing: in a forked child the connection is still the parent's
  ShmRegion(ShmRegion&& other) noexcept;
  ShmRegion& operator=(ShmRegion&& other) noexcept;

  ShmEnd& ours() const noexcept { return role_ == Role::server ? header_->server : header_->client; }
  ShmEnd& theirs() const noexcept { return role_ == Role::server ? header_->client : header_->server; }
  std::span<std::byte> outgoing() const noexcept { return ring(role_ == Role::server ? 1 : 0); }
  std::span<std::byte> incoming() const noexcept { return ring(role_ == Role::server ? 0 : 1); }

  // For people: the size of the rings, and the process at the other end.
  std::string describe() const;

 private:
  std::span<std::byte> ring(std::size_t index) const noexcept {
    return {reinterpret_cast<std::byte*>(header_) + kShmHeaderBytes + index * ring_bytes_, ring_bytes_};
  }
  Outcome map(int memory, std::uint64_t ring_bytes);
  void introduce();

  ShmHeader* header_ = nullptr;
  std::size_t ring_bytes_ = 0;  // ours alone: the one in the header is the peer's to change
  Role role_ = Role::client;
};

}  // namespace ofl
