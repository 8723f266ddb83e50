#include "reply.hpp"

#include <cassert>
#include <cstring>
#include <utility>

namespace engram {

namespace {

// A message of known length, filled from its beginning.
class Writer {
 public:
  Writer(wire::Op op, wire::Code code, std::uint64_t batch, std::size_t body_bytes)
      : message_(sizeof(wire::Header) + body_bytes) {
    put(wire::make_header(op, wire::Kind::reply, code, batch, body_bytes));
  }

  template <typename Record>
  void put(const Record& record) noexcept {
    wire::store(record, message_.data() + at_);
    at_ += sizeof record;
  }

  void put_text(std::string_view text) noexcept {
    std::memcpy(message_.data() + at_, text.data(), text.size());
    at_ += text.size();
  }

  Message done() && noexcept {
    assert(at_ == message_.size());
    return std::move(message_);
  }

 private:
  Message message_;
  std::size_t at_ = 0;
};

// At most `bytes` of UTF-8 without half a character at the end.
std::string_view cut(std::string_view text, std::size_t bytes) noexcept {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

Message refusal(const Address& to, const Fault& fault) {
  const std::string_view field = cut(fault.field, wire::kFieldBytesMax);
  const std::string_view detail = cut(fault.detail, wire::kDetailBytesMax);
  Writer writer(to.op, fault.code, to.batch, sizeof(wire::Refusal) + field.size() + detail.size());
  writer.put(wire::Refusal{.field_bytes = static_cast<std::uint16_t>(field.size()),
                           .detail_bytes = static_cast<std::uint16_t>(detail.size()),
                           .reserved0 = 0});
  writer.put_text(field);
  writer.put_text(detail);
  return std::move(writer).done();
}

Message open_reply(std::uint64_t batch, const wire::OpenReply& record) {
  Writer writer(wire::Op::open, wire::Code::ok, batch, sizeof record);
  writer.put(record);
  return std::move(writer).done();
}

Message stats_reply(std::uint64_t batch, std::string_view text) {
  const std::string_view fits = text.substr(0, wire::kStatsBytesMax);
  Writer writer(wire::Op::stats, wire::Code::ok, batch, sizeof(wire::StatsReply) + fits.size());
  writer.put(wire::StatsReply{.text_bytes = static_cast<std::uint32_t>(fits.size()), .reserved0 = 0});
  writer.put_text(fits);
  return std::move(writer).done();
}

void store_lookup_head(std::uint64_t batch, const wire::LookupReply& record, std::size_t reply_bytes,
                       std::byte* to) noexcept {
  const std::size_t body_bytes = reply_bytes - sizeof(wire::Header);
  wire::store(wire::make_header(wire::Op::lookup, wire::Kind::reply, wire::Code::ok, batch, body_bytes), to);
  wire::store(record, to + sizeof(wire::Header));
}

}  // namespace engram
