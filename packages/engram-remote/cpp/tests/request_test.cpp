// Any bytes are a request or a fault that names a field; what is announced and not there is never read.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "checksum.hpp"
#include "reply.hpp"
#include "request.hpp"

namespace {

using namespace engram;

template <typename Record>
void append(Message& message, const Record& record) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
  message.insert(message.end(), bytes, bytes + sizeof record);
}

Message with_header(wire::Op op, const Message& body) {
  // All the room at once: of an insertion into an empty vector, GCC 12 warns.
  const wire::Header header = wire::make_header(op, wire::Kind::request, wire::Code::ok, 77, body.size());
  Message message(sizeof header + body.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(body.begin(), body.end(), message.begin() + sizeof header);
  return message;
}

Message open_message(std::uint16_t layers = 2) {
  Message body;
  wire::Open open{};
  open.columns = 256;
  open.scales = 8;
  open.ranks = 2;
  open.rank = 1;
  open.layers = layers;
  open.batch_rows_max = 4096;
  append(body, open);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    append(body, wire::OpenLayer{.row_start = 5, .row_end = 50, .layer = layer, .reserved0 = 0});
  return with_header(wire::Op::open, body);
}

Message lookup_message(const std::vector<std::vector<std::uint32_t>>& parts) {
  Message body;
  append(body, wire::Lookup{.flags = 0, .parts = static_cast<std::uint16_t>(parts.size()), .reserved0 = 0});
  for (std::uint32_t layer = 0; layer < parts.size(); ++layer)
    append(body, wire::LookupPart{.layer = layer, .ids = static_cast<std::uint32_t>(parts[layer].size())});
  for (const auto& part : parts)
    for (const std::uint32_t id : part) append(body, id);
  return with_header(wire::Op::lookup, body);
}

// What the server does with a message, up to its tables; the field at fault, or "".
std::string fault_of(Bytes message) {
  wire::Header header{};
  if (const auto fault = parse_header(message, header)) return fault->field;
  const Bytes body = message.subspan(sizeof header);
  OpenView open;
  LookupView lookup;
  std::optional<Fault> fault;
  std::uint64_t read = 0;  // everything that a view offers is read, so that a sanitizer sees what is not there
  switch (static_cast<wire::Op>(header.op)) {
    case wire::Op::open:
      fault = parse_open(body, open);
      for (std::size_t i = 0; !fault && i < open.record.layers; ++i) read += open.layer(i).row_end;
      break;
    case wire::Op::lookup:
      fault = parse_lookup(body, lookup);
      for (std::size_t i = 0; !fault && i < lookup.record.parts; ++i) read += lookup.part(i).ids;
      for (std::size_t i = 0; !fault && i < lookup.rows; ++i) read += wire::load<std::uint32_t>(lookup.ids + 4 * i);
      break;
    default: fault = parse_stats(body);
  }
  volatile std::uint64_t kept = read;
  static_cast<void>(kept);
  return fault ? fault->field : "";
}

std::string fault_in_copy(const Message& message) {
  const std::vector<std::byte> exact_size(message.begin(), message.end());  // no spare capacity to read into
  return fault_of(exact_size);
}

}  // namespace

TEST(whole_messages_are_requests) {
  CHECK(fault_in_copy(open_message()).empty());
  CHECK(fault_in_copy(open_message(64)).empty());
  CHECK(fault_in_copy(lookup_message({{1, 2, 3}, {}, {wire::kNoRow}})).empty());
  CHECK(fault_in_copy(lookup_message({{}})).empty());
  CHECK(fault_in_copy(with_header(wire::Op::stats, {})).empty());
}

TEST(a_views_parts_are_the_messages) {
  const Message message = lookup_message({{7, 8}, {9}});
  LookupView view;
  CHECK(!parse_lookup(Bytes(message).subspan(sizeof(wire::Header)), view));
  CHECK(view.rows == 3);
  CHECK(view.part(0).ids == 2 && view.part(1).layer == 1);
  CHECK(wire::load<std::uint32_t>(view.ids + 8) == 9);
}

TEST(every_truncation_is_refused) {
  for (const Message& whole : {open_message(), lookup_message({{1, 2, 3}, {4}})}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      Message cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK(!fault_in_copy(cut).empty());
      if (size < sizeof(wire::Header)) continue;
      const auto body = static_cast<std::uint32_t>(size - sizeof(wire::Header));
      std::memcpy(cut.data() + offsetof(wire::Header, body_bytes), &body, sizeof body);
      CHECK(!fault_in_copy(cut).empty());  // also where the header says so
    }
  }
}

TEST(random_damage_gives_a_request_or_a_field) {
  std::mt19937 random(20261130);
  const std::vector<Message> originals{open_message(), lookup_message({{1, 2, 3}, {4}}), lookup_message({{}}),
                                       with_header(wire::Op::stats, {})};
  std::size_t refused = 0;
  for (int round = 0; round < 200'000; ++round) {
    Message message = originals[random() % originals.size()];
    for (std::size_t times = 1 + random() % 3; times > 0; --times) {
      const std::size_t at = random() % message.size();
      if (random() % 4 == 0) message.resize(at + 1);
      message[random() % message.size()] = static_cast<std::byte>(random());
    }
    if (message.size() >= sizeof(wire::Header) && random() % 2 == 0) {
      const auto body = static_cast<std::uint32_t>(message.size() - sizeof(wire::Header));
      std::memcpy(message.data() + offsetof(wire::Header, body_bytes), &body, sizeof body);
    }
    const std::string field = fault_in_copy(message);
    refused += field.empty() ? 0U : 1U;
    const Message answer = refusal(salvage(message), {wire::Code::bad_message, field, "a clause"});
    CHECK(answer.size() == sizeof(wire::Header) + sizeof(wire::Refusal) + field.size() + 8);
  }
  CHECK(refused > 100'000);
}

TEST(a_refusal_is_cut_to_what_one_may_hold_at_a_character) {
  std::string clause = "x";
  for (int i = 0; i < 600; ++i) clause += "\u00e9";
  const Message message = refusal({wire::Op::open, 5}, {wire::Code::limit, std::string(400, 'f'), clause});
  const auto record = wire::load<wire::Refusal>(message.data() + sizeof(wire::Header));
  CHECK(record.field_bytes == wire::kFieldBytesMax);
  CHECK(record.detail_bytes == wire::kDetailBytesMax - 1);  // one byte and 255 characters of two
  const auto header = wire::load<wire::Header>(message.data());
  CHECK(header.body_bytes == message.size() - sizeof header);
  CHECK(header.batch == 5 && header.status == 8);
}

TEST(planes_and_replies_have_the_sizes_of_the_contract) {
  CHECK(wire::plane_bytes(0, 256) == 0);
  CHECK(wire::plane_bytes(1, 8) == 64);
  CHECK(wire::plane_bytes(9, 8) == 128);
  CHECK(wire::part_bytes(288, 256, 8) == 73728 + 2304);
  for (std::size_t rows = 0; rows < 70; ++rows)
    CHECK(wire::kHeadBytes + wire::part_bytes(rows, 65, 5) <= wire::reply_bytes_max(rows, 1, 65, 5));
}

TEST(checksums_are_xxh3_with_64_bits) {
  if (!checksum_available()) SKIP("this build has no checksums");
  // From xxHash's own sanity checks: of no byte, and of "a" and "abc" as published.
  CHECK(checksum("", 0, 0) == 0x2D06800538D394C2U);
  CHECK(checksum("a", 1, 0) == 0xE6C632B61E964E1FU);
  CHECK(checksum("abc", 3, 0) == 0x78AF5F94892F3950U);
}
