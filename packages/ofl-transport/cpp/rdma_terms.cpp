#include "rdma_terms.hpp"

#include <algorithm>

#include "rdma_limits.hpp"

namespace ofl {

namespace {

constexpr std::uint32_t kNumberMax = 0xFFFFFF;  // queue pairs and packet sequences have 24 bits

bool is_mtu(std::uint32_t bytes) noexcept { return std::has_single_bit(bytes) && bytes >= 256 && bytes <= 4096; }

}  // namespace

const char* rdma_link_fault(const wire::RdmaLinkBody& body, const Gid& peer) noexcept {
  // A GID of somebody else would let a peer aim our packets at a third host.
  if (!std::equal(peer.begin(), peer.end(), body.gid)) return "link.gid is not the address that the connection comes from";
  // 0 and 1 are the management queue pairs of every port.
  if (body.queue_pair < 2 || body.queue_pair > kNumberMax) return "link.queue_pair is out of range";
  if (body.packet_sequence > kNumberMax) return "link.packet_sequence is out of range";
  if (body.receives < kReceivesMin || body.receives > kReceivesMax) return "link.receives is out of range";
  if (body.segment_bytes < kSegmentBytesMin || body.segment_bytes > kSegmentBytesMax)
    return "link.segment_bytes is out of range";
  if (!is_mtu(body.mtu_bytes)) return "link.mtu_bytes is not a path MTU";
  if (body.reserved != 0) return "link.reserved is not zero";
  return nullptr;
}

}  // namespace ofl
