// Readers of the test alone, right but for one planted defect, so that it is known what the fuzzer would find.  LOOKUP and its
// reply are read by code that is written apart from the library's, from the end of the message instead of its beginning.
#pragma once

#include <optional>
#include <string>

#include "reply_judge.hpp"
#include "request_judge.hpp"

namespace fuzz {

enum class Plant {
  none,      // right: it must be found clean
  overread,  // of three parts or more, one id too many is offered
  nameless,  // a fault in the reserved field of a LOOKUP is told without the field's name
  apart,     // a layer that stands twice is seen only where the two stand side by side
  tail,      // less than an id behind the last id is taken
  echo,      // a reply to another message is taken if the numbers differ in their highest byte alone
  padding,   // the zeros behind the last plane are not looked at
  trusting,  // of a refusal its texts' lengths are not looked at
};

class PlantedReader {
 public:
  explicit PlantedReader(Plant plant) noexcept : plant_(plant) {}

  // Requests.
  std::optional<engram::Fault> header(engram::Bytes message, engram::wire::Header& header) {
    return engram::parse_header(message, header);
  }
  std::optional<engram::Fault> open(engram::Bytes body, engram::OpenView& open) { return engram::parse_open(body, open); }
  std::optional<engram::Fault> stats(engram::Bytes body) { return engram::parse_stats(body); }
  engram::Address salvage(engram::Bytes message) { return engram::salvage(message); }
  engram::Message refusal(const engram::Address& to, const engram::Fault& fault) { return engram::refusal(to, fault); }

  std::optional<engram::Fault> lookup(engram::Bytes body, engram::LookupView& view) {
    if (body.size() < 8) return bad("lookup");
    const auto flags = contract::number<std::uint32_t>(body, 0);
    const auto parts = contract::number<std::uint16_t>(body, 4);
    if (contract::number<std::uint16_t>(body, 6) != 0) return bad(plant_ == Plant::nameless ? "a field" : "lookup.reserved0");
    if (flags != 0 && flags != 1) return bad("lookup.flags");
    if (parts == 0 || parts > 64 || body.size() < 8U * (parts + 1U)) return bad("lookup.parts");
    std::uint64_t rows = 0;
    for (std::size_t i = parts; i-- > 0;) {
      const auto layer = contract::number<std::uint32_t>(body, 8 + 8 * i);
      bool wrong = layer >= 64;
      const std::size_t first = plant_ == Plant::apart && i > 0 ? i - 1 : 0;
      for (std::size_t before = first; before < i; ++before)
        wrong = wrong || contract::number<std::uint32_t>(body, 8 + 8 * before) == layer;
      if (wrong) return bad("lookup_part[" + std::to_string(i) + "].layer");
      rows += contract::number<std::uint32_t>(body, 12 + 8 * i);
    }
    const std::size_t ids_bytes = body.size() - 8U * (parts + 1U);
    const bool whole = ids_bytes % 4 == 0 || plant_ == Plant::tail;
    if (!whole || ids_bytes / 4 != rows || rows > 16777216) return bad("lookup_part.ids");
    std::memcpy(&view.record, body.data(), sizeof view.record);
    view.heads = body.data() + 8;
    view.ids = view.heads + 8U * parts;
    view.rows = static_cast<std::uint32_t>(rows);
    if (plant_ == Plant::overread && parts >= 3) view.ids += 4;
    return std::nullopt;
  }

  // Replies.
  engram::Reason lookup(contract::Bytes reply, const engram::ClientSettings& settings, const engram::ClientLookup& lookup,
                        std::size_t wanted, std::uint64_t batch, std::uint64_t asked_sum) {
    if (reply.size() < 32 || std::memcmp(reply.data(), "EGRM\1\0", 6) != 0) return engram::Reason::bad_reply;
    const std::uint16_t status = contract::status_of(reply);
    const bool unreadable = contract::op_of(reply) == 0 && (status == 1 || status == 2);
    const std::uint64_t differs = (contract::batch_of(reply) ^ batch) & (plant_ == Plant::echo ? ~0ULL >> 8U : ~0ULL);
    if (!unreadable && (contract::op_of(reply) != 2 || differs != 0)) return engram::Reason::bad_reply;
    if (contract::number<std::uint8_t>(reply, 7) != 1 || status > 9) return engram::Reason::bad_reply;
    if (contract::number<std::uint16_t>(reply, 10) != 0 || contract::number<std::uint32_t>(reply, 12) != 0 ||
        contract::number<std::uint64_t>(reply, 24) != reply.size() - 32)  // with the reserved field that follows
      return engram::Reason::bad_reply;
    if (status != 0) return refused(reply, status);
    return rows(reply, settings, lookup, wanted, asked_sum);
  }

 private:
  static engram::Fault bad(std::string field) { return {engram::wire::Code::bad_message, std::move(field), "it is wrong"}; }

  engram::Reason refused(contract::Bytes reply, std::uint16_t status) const {
    const auto reason = static_cast<engram::Reason>(static_cast<std::uint32_t>(engram::Reason::refused) + status - 1);
    if (reply.size() < 40 || contract::number<std::uint32_t>(reply, 36) != 0) return engram::Reason::bad_reply;
    const std::size_t field = contract::number<std::uint16_t>(reply, 32);
    const std::size_t detail = contract::number<std::uint16_t>(reply, 34);
    if (plant_ == Plant::trusting) return reason;
    if (field > 128 || detail > 512 || field + detail != reply.size() - 40) return engram::Reason::bad_reply;
    for (std::size_t i = 40; i < 40 + field; ++i)
      if ((reply[i] & std::byte{0x80}) != std::byte{0}) return engram::Reason::bad_reply;
    return contract::is_utf8(reply.subspan(40 + field)) ? reason : engram::Reason::bad_reply;
  }

  engram::Reason rows(contract::Bytes reply, const engram::ClientSettings& settings, const engram::ClientLookup& lookup,
                      std::size_t wanted, std::uint64_t asked_sum) const {
    const bool summed = settings.checksum;
    if (reply.size() != wanted || contract::number<std::uint32_t>(reply, 32) != (summed ? 1U : 0U) ||
        contract::number<std::uint32_t>(reply, 36) != lookup.rows || contract::number<std::uint64_t>(reply, 56) != 0)
      return engram::Reason::bad_reply;
    const auto stated = contract::number<std::uint64_t>(reply, 40);
    if (!summed && stated != 0) return engram::Reason::bad_reply;
    if (summed && stated != sum(reply.subspan(64), asked_sum)) return engram::Reason::checksum;
    std::size_t end = wanted;
    for (std::size_t i = lookup.batches.size(); i-- > 0;) {
      const std::size_t count = lookup.batches[i].count;
      for (const std::size_t width : {std::size_t{settings.scales}, std::size_t{settings.columns}}) {
        const std::size_t begin = end - contract::plane(count, width);
        const bool looked_at = plant_ != Plant::padding || end != wanted;
        for (std::size_t at = begin + count * width; at < end; ++at)
          if (looked_at && reply[at] != std::byte{0}) return engram::Reason::bad_reply;
        end = begin;
      }
    }
    return engram::Reason::none;
  }

  Plant plant_;
};

}  // namespace fuzz
