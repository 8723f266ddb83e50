#include "wire.hpp"

#include <algorithm>
#include <cstring>

namespace ofl::wire {

namespace {

bool carries_call(FrameType type) noexcept {
  return type == FrameType::request || type == FrameType::reply || type == FrameType::cancel ||
         type == FrameType::cancelled;
}

const char* body_fault(FrameType type, std::uint32_t body_bytes) noexcept {
  switch (type) {
    case FrameType::connect:
      return body_bytes == sizeof(ConnectBody) ? nullptr : "body_bytes does not fit a connect frame";
    case FrameType::accept:
      return body_bytes == sizeof(AcceptBody) ? nullptr : "body_bytes does not fit an accept frame";
    case FrameType::refuse:
      return body_bytes >= sizeof(RefuseBody) && body_bytes <= sizeof(RefuseBody) + kTextBytesMax
                 ? nullptr
                 : "body_bytes does not fit a refuse frame";
    case FrameType::close:
      return body_bytes <= kTextBytesMax ? nullptr : "body_bytes does not fit a close frame";
    case FrameType::challenge:
      return body_bytes == sizeof(ChallengeBody) ? nullptr : "body_bytes does not fit a challenge frame";
    case FrameType::proof:
      return body_bytes == sizeof(ProofBody) ? nullptr : "body_bytes does not fit a proof frame";
    case FrameType::link:
      return body_bytes == sizeof(RdmaLinkBody) || body_bytes == sizeof(ShmLinkBody)
                 ? nullptr
                 : "body_bytes does not fit a link frame";
    case FrameType::cancel:
    case FrameType::cancelled:
    case FrameType::heartbeat:
      return body_bytes == 0 ? nullptr : "body_bytes of a frame without a body is not zero";
    case FrameType::request:
    case FrameType::reply:
      return nullptr;  // the limit is the connection's, not the format's
  }
  return "type is unknown";
}

bool printable_ascii(char letter) noexcept { return letter >= 0x20 && letter <= 0x7E; }

}  // namespace

FrameHeader make_header(FrameType type, std::uint64_t sequence, std::size_t body_bytes, std::uint16_t flags) noexcept {
  const auto bytes = static_cast<std::uint32_t>(body_bytes);
  return {kMagic, kHeaderVersion, static_cast<std::uint8_t>(type), flags, sequence, bytes, 0};
}

const char* header_fault(const FrameHeader& header) noexcept {
  if (header.magic != kMagic) return "magic is not OFL1";
  if (header.header_version != kHeaderVersion) return kHeaderVersionFault;
  if (header.type < 1 || header.type > static_cast<std::uint8_t>(FrameType::cancelled)) return "type is unknown";
  const bool may_be_placed = static_cast<FrameType>(header.type) == FrameType::request;
  if ((header.flags & ~(may_be_placed ? kPlaced : 0)) != 0) return "flags has bits that this type does not have";
  if ((header.flags & kPlaced) != 0 && header.body_bytes < sizeof(PlacementRecord))
    return "body_bytes of a placed request has no room for its placement";
  if (header.reserved != 0) return "reserved is not zero";
  const auto type = static_cast<FrameType>(header.type);
  if (carries_call(type) && header.sequence == 0) return "sequence of a call is zero";
  if (!carries_call(type) && header.sequence != 0) return "sequence of a frame outside a call is not zero";
  return body_fault(type, header.body_bytes);
}

const char* connect_fault(const ConnectBody& body) noexcept {
  if (body.transport < 1 || body.transport > static_cast<std::uint8_t>(Transport::shm))
    return "connect.transport is unknown";
  if (body.authentication > static_cast<std::uint8_t>(Authentication::hmac_sha256))
    return "connect.authentication is unknown";
  if (body.reserved != 0 || body.reserved_2 != 0) return "connect.reserved is not zero";
  if (body.version_min > body.version_max) return "connect.version_min is above version_max";
  if (body.frame_bytes_max < kFrameBytesMin || body.frame_bytes_max > kFrameBytesMax)
    return "connect.frame_bytes_max is out of range";
  if (body.heartbeat_ms < kHeartbeatMsMin || body.heartbeat_ms > kHeartbeatMsMax)
    return "connect.heartbeat_ms is out of range";
  if (body.loss_ms < 2 * body.heartbeat_ms) return "connect.loss_ms is below twice heartbeat_ms";
  const std::string_view name = service_of(body);
  if (name.empty() || !std::all_of(name.begin(), name.end(), printable_ascii))
    return "connect.service is not a printable name";
  const auto rest = std::string_view(body.service, kServiceBytes).substr(name.size());
  if (rest.find_first_not_of('\0') != std::string_view::npos) return "connect.service has bytes after its end";
  return nullptr;
}

const char* accept_fault(const AcceptBody& body, const ConnectBody& ours) noexcept {
  if (body.reserved != 0 || body.reserved_2 != 0) return "accept.reserved is not zero";
  if (body.transport != ours.transport) return "accept.transport is not what was asked for";
  if (body.authentication != ours.authentication) return "accept.authentication is not what was asked for";
  if (body.version < ours.version_min || body.version > ours.version_max)
    return "accept.version is outside what was offered";
  if (body.frame_bytes_max < kFrameBytesMin || body.frame_bytes_max > ours.frame_bytes_max)
    return "accept.frame_bytes_max is outside what was offered";
  if (body.calls_max == 0 || body.calls_max > kSlots) return "accept.calls_max is out of range";
  return nullptr;
}

std::string_view service_of(const ConnectBody& body) noexcept {
  return {body.service, ::strnlen(body.service, kServiceBytes)};
}

std::string printable(std::string_view text) {
  std::string clean(text.substr(0, kTextBytesMax));
  make_printable(clean);
  return clean;
}

void make_printable(std::span<char> text) noexcept {
  std::replace_if(text.begin(), text.end(), [](char letter) { return !printable_ascii(letter); }, '?');
}

}  // namespace ofl::wire
