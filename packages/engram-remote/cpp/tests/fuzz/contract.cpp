#include "contract.hpp"

#include <algorithm>

namespace contract {

namespace {

constexpr std::size_t kLayersMax = 64;
constexpr std::uint32_t kRanksMax = 1024;
constexpr std::uint32_t kColumnsMax = 65536;
constexpr std::uint32_t kBatchRowsMax = 16777216;
constexpr std::size_t kFieldBytesMax = 128;
constexpr std::size_t kDetailBytesMax = 512;
constexpr char kMagic[] = "EGRM";

std::string at_index(const char* record, std::size_t index, const char* field) {
  std::string name = record;
  name += '[';
  name += std::to_string(index);
  name += "].";
  return name += field;
}

void wrong_if(bool broken, Fields& fields, const char* field) {
  if (broken) fields.insert(field);
}

// What every header must be, of either kind.
Fields header(Bytes message, std::uint8_t kind) {
  if (message.size() < kHeaderBytes) return {"header"};
  Fields fields;
  wrong_if(std::memcmp(message.data(), kMagic, 4) != 0, fields, "header.magic");
  wrong_if(number<std::uint16_t>(message, 4) != 1, fields, "header.version");
  wrong_if(op_of(message) > kStats, fields, "header.op");
  wrong_if(number<std::uint8_t>(message, 7) != kind, fields, "header.kind");
  wrong_if(status_of(message) > kDraining, fields, "header.status");
  wrong_if(number<std::uint16_t>(message, 10) != 0, fields, "header.reserved0");
  wrong_if(number<std::uint32_t>(message, 12) != 0, fields, "header.reserved1");
  wrong_if(number<std::uint32_t>(message, 24) != message.size() - kHeaderBytes, fields, "header.body_bytes");
  wrong_if(number<std::uint32_t>(message, 28) != 0, fields, "header.reserved2");
  return fields;
}

Fields reply_header(Bytes message) {
  Fields fields = header(message, 1);
  if (message.size() < kHeaderBytes) return fields;
  const std::uint16_t status = status_of(message);
  wrong_if(op_of(message) == kUnreadable && status != kBadMessage && status != kVersion, fields, "header.op");
  return fields;
}

// The code point that begins at `at`, and past its last byte; false: none does.
bool code_point(Bytes text, std::size_t& at, std::uint32_t& point) {
  const auto first = static_cast<std::uint32_t>(text[at]);
  const std::size_t more = first < 0x80 ? 0 : first < 0xC0 ? 9 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF8 ? 3 : 9;
  constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (more == 9 || text.size() - at <= more) return false;
  point = more == 0 ? first : first & (0x3FU >> more);
  for (std::size_t i = 1; i <= more; ++i) {
    const auto next = static_cast<std::uint32_t>(text[at + i]);
    if ((next & 0xC0) != 0x80) return false;
    point = point << 6U | (next & 0x3F);
  }
  at += more + 1;
  return point >= kLeast[more] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
}

// A reply, but for what its body holds: sound, refused or broken.
Answer heard(Bytes reply, std::uint8_t op, std::uint64_t batch) {
  if (!reply_header(reply).empty()) return Answer::broken;
  if (op_of(reply) != kUnreadable && (op_of(reply) != op || batch_of(reply) != batch)) return Answer::broken;
  if (status_of(reply) == kOk) return Answer::sound;
  return refusal(reply).empty() ? Answer::refused : Answer::broken;
}

// The zeros that follow each plane.
bool padded(Bytes planes, const LookupAsked& asked) {
  std::size_t at = 0;
  for (const std::uint32_t rows : asked.rows) {
    for (const std::uint32_t width : {asked.columns, asked.scales}) {
      const std::size_t end = at + plane(rows, width);
      for (std::size_t i = at + std::size_t{rows} * width; i < end; ++i)
        if (planes[i] != std::byte{0}) return false;
      at = end;
    }
  }
  return true;
}

}  // namespace

Fields request_header(Bytes message) {
  Fields fields = header(message, 0);
  if (message.size() < kHeaderBytes) return fields;
  wrong_if(op_of(message) == kUnreadable, fields, "header.op");
  wrong_if(status_of(message) != kOk, fields, "header.status");
  return fields;
}

Fields open(Bytes body) {
  if (body.size() < kOpenBytes) return {"open"};
  Fields fields;
  const auto columns = number<std::uint32_t>(body, 32);
  const auto scales = number<std::uint32_t>(body, 36);
  const auto rank = number<std::uint16_t>(body, 40);
  const auto ranks = number<std::uint16_t>(body, 42);
  const auto layers = number<std::uint16_t>(body, 44);
  const auto rows = number<std::uint32_t>(body, 48);
  wrong_if(columns < 1 || columns > kColumnsMax, fields, "open.columns");
  wrong_if(scales < 1 || scales > columns, fields, "open.scales");
  wrong_if(ranks < 1 || ranks > kRanksMax, fields, "open.ranks");
  wrong_if(rank >= ranks, fields, "open.rank");
  wrong_if(layers < 1 || layers > kLayersMax || body.size() != kOpenBytes + layers * kOpenLayerBytes, fields, "open.layers");
  wrong_if(number<std::uint16_t>(body, 46) != 0, fields, "open.reserved0");
  wrong_if(rows < 1 || rows > kBatchRowsMax, fields, "open.batch_rows_max");
  wrong_if(number<std::uint32_t>(body, 52) != 0, fields, "open.reserved1");
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < layers && body.size() >= kOpenBytes + (i + 1) * kOpenLayerBytes; ++i) {
    const Bytes layer = body.subspan(kOpenBytes + i * kOpenLayerBytes, kOpenLayerBytes);
    const auto row_end = number<std::uint64_t>(layer, 8);
    // The last of the 32-bit ids is NO_ROW, so a range ends there at the latest.
    if (row_end > kNoRow) fields.insert(at_index("open_layer", i, "row_end"));
    if (number<std::uint64_t>(layer, 0) > row_end) fields.insert(at_index("open_layer", i, "row_start"));
    if (!seen.insert(number<std::uint32_t>(layer, 16)).second) fields.insert(at_index("open_layer", i, "layer"));
    wrong_if(number<std::uint32_t>(layer, 20) != 0, fields, "open_layer.reserved0");
  }
  return fields;
}

Fields lookup(Bytes body) {
  if (body.size() < kLookupBytes) return {"lookup"};
  Fields fields;
  const auto parts = number<std::uint16_t>(body, 4);
  wrong_if(number<std::uint32_t>(body, 0) > 1, fields, "lookup.flags");
  const std::size_t ids_at = kLookupBytes + parts * kLookupPartBytes;
  wrong_if(parts < 1 || parts > kLayersMax || body.size() < ids_at, fields, "lookup.parts");
  wrong_if(number<std::uint16_t>(body, 6) != 0, fields, "lookup.reserved0");
  std::set<std::uint32_t> seen;
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < parts && body.size() >= kLookupBytes + (i + 1) * kLookupPartBytes; ++i) {
    const Bytes part = body.subspan(kLookupBytes + i * kLookupPartBytes, kLookupPartBytes);
    const auto layer = number<std::uint32_t>(part, 0);
    const bool again = !seen.insert(layer).second;
    if (again || layer >= kLayersMax) fields.insert(at_index("lookup_part", i, "layer"));
    rows += number<std::uint32_t>(part, 4);
  }
  wrong_if(rows > kBatchRowsMax || body.size() != ids_at + rows * 4, fields, "lookup_part.ids");
  return fields;
}

Fields stats(Bytes body) { return body.empty() ? Fields{} : Fields{"stats"}; }

Fields request(Bytes message) {
  Fields fields = request_header(message);
  if (!fields.empty()) return fields;
  const Bytes body = message.subspan(kHeaderBytes);
  switch (op_of(message)) {
    case kOpen: return open(body);
    case kLookup: return lookup(body);
    default: return stats(body);
  }
}

Address address(Bytes message) {
  const Fields fields = header(message, 0);
  for (const char* field : {"header", "header.magic", "header.kind", "header.reserved0", "header.reserved1", "header.reserved2"})
    if (fields.contains(field)) return {kUnreadable, 0};
  return {op_of(message) <= kStats ? op_of(message) : std::uint8_t{kUnreadable}, batch_of(message)};
}

Fields refusal(Bytes message) {
  Fields fields = reply_header(message);
  if (!fields.empty()) return fields;
  wrong_if(status_of(message) == kOk, fields, "header.status");
  const Bytes body = message.subspan(kHeaderBytes);
  if (body.size() < kRefusalBytes) return {"refusal"};
  const std::size_t field_bytes = number<std::uint16_t>(body, 0);
  const std::size_t detail_bytes = number<std::uint16_t>(body, 2);
  wrong_if(field_bytes > kFieldBytesMax, fields, "refusal.field_bytes");
  wrong_if(detail_bytes > kDetailBytesMax, fields, "refusal.detail_bytes");
  wrong_if(number<std::uint32_t>(body, 4) != 0, fields, "refusal.reserved0");
  wrong_if(body.size() != kRefusalBytes + field_bytes + detail_bytes, fields, "refusal");
  if (!fields.empty()) return fields;
  const Bytes field = body.subspan(kRefusalBytes, field_bytes);
  wrong_if(std::any_of(field.begin(), field.end(), [](std::byte one) { return one >= std::byte{0x80}; }), fields,
           "refusal.field");
  wrong_if(!is_utf8(body.subspan(kRefusalBytes + field_bytes)), fields, "refusal.detail");
  return fields;
}

Refusal refusal_of(Bytes sound) {
  const auto* const text = reinterpret_cast<const char*>(sound.data()) + kHeaderBytes + kRefusalBytes;
  const std::size_t field_bytes = number<std::uint16_t>(sound, kHeaderBytes);
  return {std::string(text, field_bytes), std::string(text + field_bytes, number<std::uint16_t>(sound, kHeaderBytes + 2))};
}

Answer open_answer(Bytes reply, const OpenAsked& asked) {
  const Answer answer = heard(reply, kOpen, asked.batch);
  if (answer != Answer::sound) return answer;
  const Bytes body = reply.subspan(kHeaderBytes);
  if (body.size() != kOpenReplyBytes) return Answer::broken;
  const auto rows = number<std::uint32_t>(body, 40);
  const bool sound = std::equal(asked.identity.begin(), asked.identity.end(), body.begin()) && rows >= asked.batch_rows_max &&
                     rows <= kBatchRowsMax && number<std::uint32_t>(body, 44) > 0;
  return sound ? Answer::sound : Answer::broken;
}

std::size_t reply_bytes(const LookupAsked& asked) {
  std::size_t bytes = kHeaderBytes + kLookupReplyBytes;
  for (const std::uint32_t rows : asked.rows) bytes += plane(rows, asked.columns) + plane(rows, asked.scales);
  return bytes;
}

Answer lookup_answer(Bytes reply, const LookupAsked& asked, std::uint64_t (*sum)(Bytes, std::uint64_t), std::uint64_t seed) {
  const Answer answer = heard(reply, kLookup, asked.batch);
  if (answer != Answer::sound) return answer;
  if (reply.size() != reply_bytes(asked)) return Answer::broken;
  const Bytes body = reply.subspan(kHeaderBytes);
  std::uint64_t rows = 0;
  for (const std::uint32_t part : asked.rows) rows += part;
  if (number<std::uint32_t>(body, 0) != asked.flags || number<std::uint32_t>(body, 4) != rows) return Answer::broken;
  if (number<std::uint64_t>(body, 24) != 0) return Answer::broken;
  const auto stated = number<std::uint64_t>(body, 8);
  const Bytes planes = body.subspan(kLookupReplyBytes);
  if (asked.flags == 0 && stated != 0) return Answer::broken;
  if (asked.flags != 0 && stated != sum(planes, seed)) return Answer::changed;
  return padded(planes, asked) ? Answer::sound : Answer::broken;
}

bool is_utf8(Bytes text) {
  std::uint32_t point = 0;
  for (std::size_t at = 0; at < text.size();)
    if (!code_point(text, at, point)) return false;
  return true;
}

bool is_one_line(Bytes text) {
  std::uint32_t point = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!code_point(text, at, point)) return false;
    if (point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x2028 || point == 0x2029) return false;
  }
  return true;
}

}  // namespace contract
