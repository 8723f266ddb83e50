// What every reader of requests must keep, whatever the bytes:
//
//     any message gives a view that stays inside it, or one fault that names a field that is at fault; and the refusal
//     written for it is itself sound, and addressed to it.
//
// A Reader has what request.hpp and reply.hpp have as functions: header, open, lookup, stats, salvage, refusal.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "contract.hpp"
#include "harness.hpp"
#include "reply.hpp"
#include "request.hpp"

namespace fuzz {

// A copy whose ends are watched, so that a read outside is seen.
class Copy {
 public:
  explicit Copy(engram::Bytes bytes) : memory_(bytes.size()) { std::copy(bytes.begin(), bytes.end(), memory_.data()); }
  engram::Bytes bytes() const noexcept { return {memory_.data(), memory_.bytes()}; }

 private:
  LandingMemory memory_;
};

// The header says the length that there is, so that what lies behind it is reached.
inline void state_length(std::vector<std::uint8_t>& message) {
  if (message.size() < contract::kHeaderBytes) return;
  const auto bytes = static_cast<std::uint32_t>(message.size() - contract::kHeaderBytes);
  std::memcpy(message.data() + 24, &bytes, sizeof bytes);
}

inline void judge_fault(const std::optional<engram::Fault>& fault, const contract::Fields& wrong) {
  HOLDS(fault.has_value() == !wrong.empty(), "what breaks the contract is refused, and nothing else is");
  if (!fault) return;
  HOLDS(wrong.contains(fault->field), "a fault names a field that is at fault");
  HOLDS(!fault->detail.empty(), "a fault has a clause");
  const bool version = fault->field == "header.version";
  HOLDS(static_cast<std::uint16_t>(fault->code) == (version ? contract::kVersion : contract::kBadMessage),
        "a fault has the status of its kind");
}

inline void judge_view(const engram::OpenView& open, engram::Bytes body) {
  HOLDS(open.layers == body.data() + contract::kOpenBytes, "layers lie behind the record");
  HOLDS(std::memcmp(&open.record, body.data(), contract::kOpenBytes) == 0, "the record is the message's");
  for (std::size_t i = 0; i < open.record.layers; ++i) {
    const engram::wire::OpenLayer layer = open.layer(i);
    const engram::Bytes bytes = body.subspan(contract::kOpenBytes + i * contract::kOpenLayerBytes);
    HOLDS(layer.row_start == contract::number<std::uint64_t>(bytes, 0) &&
              layer.row_end == contract::number<std::uint64_t>(bytes, 8) &&
              layer.layer == contract::number<std::uint32_t>(bytes, 16),
          "a layer is the message's");
  }
}

inline void judge_view(const engram::LookupView& lookup, engram::Bytes body) {
  const std::size_t parts = lookup.record.parts;
  HOLDS(std::memcmp(&lookup.record, body.data(), contract::kLookupBytes) == 0, "the record is the message's");
  HOLDS(lookup.heads == body.data() + contract::kLookupBytes, "parts lie behind the record");
  HOLDS(lookup.ids == lookup.heads + parts * contract::kLookupPartBytes, "ids lie behind the parts");
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const engram::Bytes bytes = body.subspan(contract::kLookupBytes + i * contract::kLookupPartBytes);
    const engram::wire::LookupPart part = lookup.part(i);
    HOLDS(part.layer == contract::number<std::uint32_t>(bytes, 0) && part.ids == contract::number<std::uint32_t>(bytes, 4),
          "a part is the message's");
    rows += part.ids;
  }
  HOLDS(lookup.rows == rows, "rows are those of all parts");
  std::uint32_t all = 0;  // read as the server reads them
  for (std::size_t i = 0; i < lookup.rows; ++i) all |= engram::wire::load<std::uint32_t>(lookup.ids + i * 4);
  HOLDS(lookup.ids + rows * 4 == body.data() + body.size() && (rows > 0 || all == 0), "ids reach to the end of the message");
}

template <typename Reader>
std::optional<engram::Fault> judge_body(Reader& reader, std::uint8_t op, engram::Bytes body) {
  std::optional<engram::Fault> fault;
  switch (op) {
    case contract::kOpen: {
      engram::OpenView open;
      judge_fault(fault = reader.open(body, open), contract::open(body));
      if (!fault) judge_view(open, body);
      break;
    }
    case contract::kLookup: {
      engram::LookupView lookup;
      judge_fault(fault = reader.lookup(body, lookup), contract::lookup(body));
      if (!fault) judge_view(lookup, body);
      break;
    }
    default: judge_fault(fault = reader.stats(body), contract::stats(body)); break;
  }
  return fault;
}

// The refusal of a message that was refused.
template <typename Reader>
void judge_refusal(Reader& reader, engram::Bytes message, const engram::Fault& fault) {
  const engram::Address to = reader.salvage(message);
  const contract::Address expected = contract::address(message);
  HOLDS(static_cast<std::uint8_t>(to.op) == expected.op && to.batch == expected.batch, "a refusal is addressed to the message");
  const Copy refusal(reader.refusal(to, fault));
  HOLDS(contract::refusal(refusal.bytes()).empty(), "a refusal is a sound message");
  HOLDS(contract::op_of(refusal.bytes()) == expected.op && contract::batch_of(refusal.bytes()) == expected.batch,
        "a refusal says whom it answers");
  HOLDS(contract::status_of(refusal.bytes()) == static_cast<std::uint16_t>(fault.code), "a refusal has the fault's status");
  const contract::Refusal said = contract::refusal_of(refusal.bytes());
  HOLDS(said.field == fault.field && said.detail == fault.detail, "a refusal says what the fault says");
}

// As the server reads: the header, then the body of its operation.
template <typename Reader>
void judge_request(Reader& reader, engram::Bytes message) {
  engram::wire::Header header{};
  std::optional<engram::Fault> fault = reader.header(message, header);
  judge_fault(fault, contract::request_header(message));
  if (!fault) {
    HOLDS(std::memcmp(&header, message.data(), contract::kHeaderBytes) == 0, "the header is the message's");
    fault = judge_body(reader, contract::op_of(message), message.subspan(contract::kHeaderBytes));
  }
  if (fault) judge_refusal(reader, message, *fault);
}

}  // namespace fuzz
