// The frames on the wire: layout, limits, and the rules that a header must keep.  Pure: no sockets, clocks, threads.
//
// Every integer is little-endian and every struct is sent as it lies in memory, which the assertions below make safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ofl::wire {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

inline constexpr std::uint32_t kMagic = 0x314C464F;  // the bytes "OFL1"
inline constexpr std::uint8_t kHeaderVersion = 2;
inline constexpr std::size_t kServiceBytes = 64;
inline constexpr std::size_t kTextBytesMax = 240;      // refusals and reasons
inline constexpr std::uint32_t kFrameBytesMin = 1024;  // a smaller limit could not carry a service's own errors
inline constexpr std::uint32_t kFrameBytesMax = 1U << 30;
inline constexpr std::uint32_t kSlots = 256;  // calls that one connection can hold open
inline constexpr std::uint32_t kHeartbeatMsMin = 10;
inline constexpr std::uint32_t kHeartbeatMsMax = 60'000;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMacBytes = 32;  // HMAC-SHA-256
inline constexpr std::uint16_t kPlaced = 1;   // flag of a request: its body begins with a PlacementRecord

enum class FrameType : std::uint8_t {
  connect = 1,
  accept = 2,
  refuse = 3,
  request = 4,
  reply = 5,
  cancel = 6,
  heartbeat = 7,
  close = 8,
  challenge = 9,
  proof = 10,
  link = 11,
  cancelled = 12,
};

// The wire that carries the data frames once both ends have negotiated.
enum class Transport : std::uint8_t { tcp = 1, rdma = 2, shm = 3 };

enum class Authentication : std::uint8_t { none = 0, hmac_sha256 = 1 };

enum class RefuseCode : std::uint32_t {
  header_version = 1,
  service = 2,
  version = 3,
  limits = 4,
  full = 5,
  authentication = 6,
  transport = 7,
};

struct FrameHeader {
  std::uint32_t magic;
  std::uint8_t header_version;
  std::uint8_t type;
  std::uint16_t flags;  // kPlaced on a request; zero otherwise
  std::uint64_t sequence;
  std::uint32_t body_bytes;
  std::uint32_t reserved;
};

struct ConnectBody {
  std::uint64_t boot_nonce;
  std::uint32_t frame_bytes_max;
  std::uint16_t version_min;
  std::uint16_t version_max;
  std::uint32_t heartbeat_ms;
  std::uint32_t loss_ms;
  std::uint8_t transport;
  std::uint8_t authentication;
  std::uint16_t reserved;
  std::uint32_t reserved_2;
  char service[kServiceBytes];  // NUL-padded
  std::uint8_t nonce[kNonceBytes];
};

// The server's half of the proof that both know the key; see docs/transport/wire.md.
struct ChallengeBody {
  std::uint8_t nonce[kNonceBytes];
};

struct ProofBody {
  std::uint8_t mac[kMacBytes];
};

struct AcceptBody {
  std::uint64_t boot_nonce;
  std::uint32_t frame_bytes_max;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint32_t calls_max;
  std::uint8_t transport;
  std::uint8_t authentication;
  std::uint16_t reserved_2;
  std::uint8_t mac[kMacBytes];  // zero without authentication
};

struct RefuseBody {
  std::uint32_t code;
  std::uint32_t reserved;
  // then at most kTextBytesMax bytes of text
};

// Where the client wants the reply of a placed request.  address and key are 0 on wires without one-sided writes.
struct PlacementRecord {
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t bytes;
};

// One end of an RDMA connection, as its link frame tells it.
struct RdmaLinkBody {
  std::uint8_t gid[16];
  std::uint32_t queue_pair;
  std::uint32_t packet_sequence;  // first packet sequence number that this end sends
  std::uint32_t receives;         // posted before this frame was sent: the peer's credits
  std::uint32_t segment_bytes;    // of one receive; both ends use the smaller
  std::uint32_t mtu_bytes;        // active path MTU; both ends use the smaller
  std::uint32_t reserved;
};

// The client's wishes, or the server's decision, with which the server passes the memory's descriptor.
struct ShmLinkBody {
  std::uint64_t ring_bytes;    // of each direction, a power of two
  std::uint64_t region_bytes;  // of the memory; 0 from the client
};

template <typename T, std::size_t Size>
inline constexpr bool kPlain = std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T> && sizeof(T) == Size &&
                               std::has_unique_object_representations_v<T>;  // the last one: no padding

static_assert(kPlain<FrameHeader, 24>);
static_assert(offsetof(FrameHeader, header_version) == 4 && offsetof(FrameHeader, type) == 5);
static_assert(offsetof(FrameHeader, flags) == 6 && offsetof(FrameHeader, sequence) == 8);
static_assert(offsetof(FrameHeader, body_bytes) == 16 && offsetof(FrameHeader, reserved) == 20);
static_assert(kPlain<ConnectBody, 128>);
static_assert(offsetof(ConnectBody, frame_bytes_max) == 8 && offsetof(ConnectBody, version_min) == 12);
static_assert(offsetof(ConnectBody, heartbeat_ms) == 16 && offsetof(ConnectBody, transport) == 24);
static_assert(offsetof(ConnectBody, service) == 32 && offsetof(ConnectBody, nonce) == 96);
static_assert(kPlain<AcceptBody, 56>);
static_assert(offsetof(AcceptBody, version) == 12 && offsetof(AcceptBody, calls_max) == 16);
static_assert(offsetof(AcceptBody, transport) == 20 && offsetof(AcceptBody, mac) == 24);
static_assert(kPlain<RefuseBody, 8> && kPlain<ChallengeBody, 32> && kPlain<ProofBody, 32>);
static_assert(kPlain<PlacementRecord, 16> && offsetof(PlacementRecord, key) == 8);
static_assert(kPlain<RdmaLinkBody, 40> && offsetof(RdmaLinkBody, queue_pair) == 16);
static_assert(kPlain<ShmLinkBody, 16>);
inline constexpr std::size_t kLinkBytesMax = sizeof(RdmaLinkBody);

// Where a reply belongs: a slot of the caller, and the call that holds it now.  Both follow from the sequence number.
struct Slot {
  std::uint32_t index;
  std::uint64_t generation;
};

inline constexpr Slot slot_of(std::uint64_t sequence) noexcept {
  return {static_cast<std::uint32_t>(sequence % kSlots), sequence / kSlots};
}

inline constexpr std::uint64_t sequence_of(Slot slot) noexcept { return slot.generation * kSlots + slot.index; }

FrameHeader make_header(FrameType type, std::uint64_t sequence, std::size_t body_bytes,
                        std::uint16_t flags = 0) noexcept;

// The one fault that is answered with a refusal, so that an old peer learns why.  An array, and so one address.
inline constexpr char kHeaderVersionFault[] = "header_version is not 2";

// What is wrong with a header, as a clause that names the field, or nullptr.  Peer input: judged, never asserted.
const char* header_fault(const FrameHeader& header) noexcept;

// The same for bodies of the negotiation.
const char* connect_fault(const ConnectBody& body) noexcept;
const char* accept_fault(const AcceptBody& body, const ConnectBody& ours) noexcept;

std::string_view service_of(const ConnectBody& body) noexcept;

// Printable text of at most kTextBytesMax bytes from what a peer sent: control and non-ASCII bytes become '?'.
std::string printable(std::string_view text);
// The same where it stands, of text that is short enough.
void make_printable(std::span<char> text) noexcept;

}  // namespace ofl::wire
