#include "client_frame.hpp"

#include <algorithm>
#include <optional>

#include "checksum.hpp"
#include "peer_text.hpp"

namespace engram {

namespace {

using wire::Code;

// nullptr: a reply to message `batch` of operation `op`, whole.  Else what is wrong with it.
const char* header_fault(std::span<const std::byte> body, wire::Op op, std::uint64_t batch) noexcept {
  if (body.size() < sizeof(wire::Header)) return "is shorter than a header";
  const auto header = wire::load<wire::Header>(body.data());
  const auto code = static_cast<Code>(header.status);
  const bool unreadable = header.op == static_cast<std::uint8_t>(wire::Op::unreadable) &&
                          (code == Code::bad_message || code == Code::version);
  if (header.magic != wire::kMagic) return "has another magic";
  if (header.version != wire::kVersion) return "has another version";
  if (header.kind != static_cast<std::uint8_t>(wire::Kind::reply)) return "is no reply";
  if (header.op != static_cast<std::uint8_t>(op) && !unreadable) return "is of another operation";
  if (header.reserved0 != 0 || header.reserved1 != 0 || header.reserved2 != 0) return "has reserved fields that are not zero";
  if (header.batch != batch && !unreadable) return "is to another message";
  if (header.body_bytes != body.size() - sizeof(wire::Header)) return "states another length than it has";
  if (header.status >= wire::kCodes) return "has a status that is not known";
  return nullptr;
}

struct RefusalTexts {
  std::span<const std::byte> field;
  std::span<const std::byte> detail;
};

// Of a reply that is no OK: what it says; nothing where that breaks the contract.
std::optional<RefusalTexts> read_refusal(std::span<const std::byte> body) noexcept {
  std::span<const std::byte> rest = body.subspan(sizeof(wire::Header));
  if (rest.size() < sizeof(wire::Refusal)) return std::nullopt;
  const auto record = wire::load<wire::Refusal>(rest.data());
  rest = rest.subspan(sizeof(wire::Refusal));
  if (record.field_bytes > wire::kFieldBytesMax || record.detail_bytes > wire::kDetailBytesMax || record.reserved0 != 0)
    return std::nullopt;
  if (rest.size() != std::size_t{record.field_bytes} + record.detail_bytes) return std::nullopt;
  const RefusalTexts texts{rest.first(record.field_bytes), rest.subspan(record.field_bytes)};
  if (!is_ascii(texts.field) || !is_utf8(texts.detail)) return std::nullopt;
  return texts;
}

// Whether the planes of a reply, of as many bytes as were asked for, are followed by zeros alone.
bool zeros_follow(std::span<const std::byte> planes, const ClientSettings& settings, const ClientLookup& lookup) noexcept {
  for (const engram_batch& batch : lookup.batches) {
    for (const std::size_t width : {settings.columns, settings.scales}) {
      const std::size_t used = batch.count * width;
      const std::size_t bytes = wire::plane_bytes(batch.count, width);
      const auto zeros = planes.subspan(used, bytes - used);
      if (std::any_of(zeros.begin(), zeros.end(), [](std::byte byte) { return byte != std::byte{0}; })) return false;
      planes = planes.subspan(bytes);
    }
  }
  return true;
}

const char* code_name(Code code) noexcept {
  return kReasonNames[static_cast<std::uint32_t>(refused_with(code))] + sizeof "refused_" - 1;
}

OpenAnswer broken(const ClientSettings& settings, const std::string& detail) {
  return {failure(ENGRAM_LOST, settings.endpoint() + " broke the protocol: its answer to OPEN " + detail), false};
}

OpenAnswer refused(const ClientSettings& settings, Code code, std::span<const std::byte> body) {
  const std::optional<RefusalTexts> texts = read_refusal(body);
  if (!texts) return broken(settings, "is a refusal that cannot be read");
  const std::string text = printable(texts->field) + ": " + printable(texts->detail);
  const bool passing = code == Code::draining;
  return {failure(ENGRAM_REFUSED, settings.endpoint() + " refused OPEN (" + code_name(code) + "): " + text +
                                      "; this side has identity " + hex(settings.identity) + ", rank " +
                                      std::to_string(settings.rank) + " of " + std::to_string(settings.ranks)),
          !passing};
}

}  // namespace

std::vector<std::byte> open_request(const ClientSettings& settings, std::uint64_t batch) {
  const std::size_t body = sizeof(wire::Open) + settings.layers.size() * sizeof(wire::OpenLayer);
  std::vector<std::byte> bytes(sizeof(wire::Header) + body);
  std::byte* at = bytes.data();
  wire::store(wire::make_header(wire::Op::open, wire::Kind::request, Code::ok, batch, body), at);
  at += sizeof(wire::Header);
  wire::Open open{};
  open.identity = settings.identity;
  open.columns = settings.columns;
  open.scales = settings.scales;
  open.rank = static_cast<std::uint16_t>(settings.rank);
  open.ranks = static_cast<std::uint16_t>(settings.ranks);
  open.layers = static_cast<std::uint16_t>(settings.layers.size());
  open.batch_rows_max = settings.batch_rows_max;
  wire::store(open, at);
  at += sizeof open;
  for (const ShardSpec& spec : settings.layers) {
    const wire::OpenLayer layer{spec.row_start, spec.row_end, spec.layer, 0};
    wire::store(layer, at);
    at += sizeof layer;
  }
  return bytes;
}

OpenAnswer judge_open(std::span<const std::byte> body, const ClientSettings& settings, std::uint64_t batch) {
  if (const char* fault = header_fault(body, wire::Op::open, batch)) return broken(settings, fault);
  const auto code = static_cast<Code>(wire::load<wire::Header>(body.data()).status);
  if (code != Code::ok) return refused(settings, code, body);
  if (body.size() != sizeof(wire::Header) + sizeof(wire::OpenReply)) return broken(settings, "has another length");
  const auto reply = wire::load<wire::OpenReply>(body.data() + sizeof(wire::Header));
  if (reply.identity != settings.identity)
    return broken(settings, "says yes with identity " + hex(reply.identity) + " where " + hex(settings.identity) +
                                " was asked for");
  if (reply.batch_rows_max < settings.batch_rows_max) return broken(settings, "has a batch_rows_max below the one asked for");
  if (reply.batch_rows_max > wire::kBatchRowsMax) return broken(settings, "has a batch_rows_max above the contract's limit");
  if (reply.calls_max == 0) return broken(settings, "allows no lookup");
  return {};
}

LookupRequest write_lookup(std::span<std::byte> room, const ClientSettings& settings, const ClientLookup& lookup,
                           std::uint64_t batch) noexcept {
  const std::size_t records = sizeof(wire::Header) + sizeof(wire::Lookup) + lookup.batches.size() * sizeof(wire::LookupPart);
  LookupRequest request{records + lookup.rows * sizeof(std::uint32_t), 0};
  wire::store(wire::make_header(wire::Op::lookup, wire::Kind::request, Code::ok, batch, request.bytes - sizeof(wire::Header)),
              room.data());
  const wire::Lookup record{settings.checksum ? wire::kChecksum : 0U, static_cast<std::uint16_t>(lookup.batches.size()), 0};
  wire::store(record, room.data() + sizeof(wire::Header));
  std::byte* part = room.data() + sizeof(wire::Header) + sizeof record;
  std::byte* ids = room.data() + records;
  for (const engram_batch& one : lookup.batches) {
    wire::store(wire::LookupPart{one.layer, one.count}, part);
    part += sizeof(wire::LookupPart);
    const ShardSpec& spec = settings.layers[one.layer];
    for (std::uint32_t i = 0; i < one.count; ++i, ids += sizeof(std::uint32_t)) {
      const std::int64_t id = one.ids[i];
      const bool inside = id >= static_cast<std::int64_t>(spec.row_start) && id < static_cast<std::int64_t>(spec.row_end);
      const std::uint32_t sent = inside ? static_cast<std::uint32_t>(id) : wire::kNoRow;
      request.out_of_shard += inside ? 0U : 1U;
      wire::store(sent, ids);
    }
  }
  return request;
}

std::uint64_t request_sum(std::span<const std::byte> request, const ClientSettings& settings, std::uint64_t seed) noexcept {
  if (!settings.checksum) return 0;
  const std::span<const std::byte> body = request.subspan(sizeof(wire::Header));
  return checksum(body.data(), body.size(), seed);
}

Reason judge_lookup(std::span<const std::byte> body, const ClientSettings& settings, const ClientLookup& lookup,
                    std::size_t wanted, std::uint64_t batch, std::uint64_t asked_sum) noexcept {
  if (header_fault(body, wire::Op::lookup, batch) != nullptr) return Reason::bad_reply;
  const auto code = static_cast<Code>(wire::load<wire::Header>(body.data()).status);
  if (code != Code::ok) return read_refusal(body) ? refused_with(code) : Reason::bad_reply;
  if (body.size() != wanted) return Reason::bad_reply;
  const auto reply = wire::load<wire::LookupReply>(body.data() + sizeof(wire::Header));
  const std::uint32_t flags = settings.checksum ? wire::kChecksum : 0U;
  if (reply.flags != flags || reply.rows != lookup.rows || reply.reserved0 != 0) return Reason::bad_reply;
  if (!settings.checksum && reply.checksum != 0) return Reason::bad_reply;
  const std::span<const std::byte> planes = body.subspan(wire::kHeadBytes);
  if (settings.checksum && checksum(planes.data(), planes.size(), asked_sum) != reply.checksum) return Reason::checksum;
  return zeros_follow(planes, settings, lookup) ? Reason::none : Reason::bad_reply;
}

}  // namespace engram
