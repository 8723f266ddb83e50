#include "exchange.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "checksum.hpp"

namespace fuzz {

namespace {

template <typename Number>
void put(Message& message, std::size_t at, Number value) {
  std::memcpy(message.data() + at, &value, sizeof value);
}

}  // namespace

engram::ClientSettings any_settings(Choices& choices) {
  engram::ClientSettings settings;
  settings.host = "server";
  settings.transport = OFL_TCP;
  settings.identity.fill(0x11);
  settings.ranks = static_cast<std::uint32_t>(1 + choices.below(4));
  settings.rank = static_cast<std::uint32_t>(choices.below(settings.ranks));
  settings.columns = static_cast<std::uint32_t>(choices.one_in(2) ? 256 : 1 + choices.below(300));
  settings.scales = static_cast<std::uint32_t>(1 + choices.below(std::min<std::size_t>(settings.columns, 70)));
  settings.batch_rows_max = static_cast<std::uint32_t>(1 + choices.below(64));
  settings.checksum = engram::checksum_available() && choices.one_in(2);
  const std::size_t layers = choices.one_in(16) ? 64 : 1 + choices.below(4);
  for (std::size_t i = 0; i < layers; ++i) {
    engram::ShardSpec spec;
    spec.layer = static_cast<std::uint32_t>(3 * i);
    spec.row_start = choices.below(1000);
    spec.row_end = spec.row_start + 1 + choices.below(1000);
    settings.layers.push_back(spec);
  }
  return settings;
}

Question::Question(const engram::ClientSettings& settings, Choices& choices) : settings_(settings) {
  const std::size_t layers = settings.layers.size();
  const std::size_t parts = choices.one_in(8) ? layers : 1 + choices.below(std::min<std::size_t>(layers, 3));
  const std::size_t first = choices.below(layers);
  std::size_t left = settings.batch_rows_max;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t layer = (first + i) % layers;
    std::vector<std::int32_t> ids(choices.below(std::min<std::size_t>(left, 20) + 1));
    left -= ids.size();
    for (std::int32_t& id : ids)
      id = choices.one_in(4) ? static_cast<std::int32_t>(static_cast<std::uint32_t>(choices.below(SIZE_MAX)))
                             : static_cast<std::int32_t>(settings.layers[layer].row_start + choices.below(1010));
    ids_.push_back(std::move(ids));
    batches_.push_back({ids_.back().data(), static_cast<std::uint32_t>(ids_.back().size()), static_cast<std::uint32_t>(layer)});
    lookup_.rows += ids_.back().size();
  }
  lookup_.batches = batches_;
}

contract::LookupAsked Question::asked(std::uint64_t batch) const {
  contract::LookupAsked asked{batch, settings_.checksum ? 1U : 0U, settings_.columns, settings_.scales, {}};
  for (const std::vector<std::int32_t>& ids : ids_) asked.rows.push_back(static_cast<std::uint32_t>(ids.size()));
  return asked;
}

void Question::judge_request(contract::Bytes request, std::uint64_t batch) const {
  HOLDS(contract::request(request).empty(), "a client sends sound requests");
  HOLDS(contract::op_of(request) == contract::kLookup && contract::batch_of(request) == batch, "it is the lookup");
  const contract::Bytes body = request.subspan(contract::kHeaderBytes);
  HOLDS(contract::number<std::uint32_t>(body, 0) == (settings_.checksum ? 1U : 0U), "a checksum is asked for as it is set");
  HOLDS(contract::number<std::uint16_t>(body, 4) == batches_.size(), "every part is asked for");
  std::size_t at = contract::kLookupBytes + batches_.size() * contract::kLookupPartBytes;
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const contract::Bytes part = body.subspan(contract::kLookupBytes + i * contract::kLookupPartBytes);
    HOLDS(contract::number<std::uint32_t>(part, 0) == batches_[i].layer, "a part names its layer");
    HOLDS(contract::number<std::uint32_t>(part, 4) == batches_[i].count, "a part says its ids");
    const engram::ShardSpec& shard = settings_.layers[batches_[i].layer];
    for (const std::int32_t id : ids_[i]) {
      const bool inside = id >= 0 && static_cast<std::uint64_t>(id) >= shard.row_start &&
                          static_cast<std::uint64_t>(id) < shard.row_end;
      HOLDS(contract::number<std::uint32_t>(body, at) == (inside ? static_cast<std::uint32_t>(id) : contract::kNoRow),
            "an id is the table's own, and none outside of the shard");
      at += 4;
    }
  }
}

contract::OpenAsked open_asked(const engram::ClientSettings& settings, std::uint64_t batch) {
  const auto identity = std::as_bytes(std::span(settings.identity));
  return {batch, {identity.begin(), identity.end()}, settings.batch_rows_max};
}

void judge_open_request(contract::Bytes request, const engram::ClientSettings& settings, std::uint64_t batch) {
  HOLDS(contract::request(request).empty(), "a client sends sound requests");
  HOLDS(contract::op_of(request) == contract::kOpen && contract::batch_of(request) == batch, "it is the OPEN");
  const contract::Bytes body = request.subspan(contract::kHeaderBytes);
  HOLDS(contract::number<std::uint32_t>(body, 48) == settings.batch_rows_max, "it asks for the rows that are set");
  HOLDS(contract::number<std::uint16_t>(body, 44) == settings.layers.size(), "it names all layers");
}

std::uint64_t sum(contract::Bytes bytes, std::uint64_t seed) {
  return engram::checksum_available() ? engram::checksum(bytes.data(), bytes.size(), seed) : 0;
}

std::byte Answers::next() {
  if (stream_.empty()) return std::byte{0};
  const auto byte = static_cast<std::byte>(stream_.front());
  stream_ = stream_.subspan(1);
  return byte;
}

Message Answers::rest(std::size_t bytes_max) {
  Message bytes(std::min(bytes_max, stream_.size()));
  for (std::byte& one : bytes) one = next();
  return bytes;
}

Message Answers::header(std::uint8_t op, std::uint64_t batch, std::uint16_t status, std::size_t body_bytes) {
  Message message(contract::kHeaderBytes + body_bytes);
  std::memcpy(message.data(), "EGRM", 4);
  put<std::uint16_t>(message, 4, 1);
  put<std::uint8_t>(message, 6, op);
  put<std::uint8_t>(message, 7, 1);
  put<std::uint16_t>(message, 8, status);
  put<std::uint64_t>(message, 16, batch);
  put<std::uint32_t>(message, 24, static_cast<std::uint32_t>(body_bytes));
  return message;
}

// The bytes as they are, or with what a reader compares first made to fit.
Message Answers::arbitrary(std::uint8_t op, std::uint64_t batch) {
  Message message = rest(std::numeric_limits<std::size_t>::max());
  if (message.size() < contract::kHeaderBytes || choices_.one_in(4)) return message;
  put<std::uint32_t>(message, 24, static_cast<std::uint32_t>(message.size() - contract::kHeaderBytes));
  if (!choices_.one_in(4)) put<std::uint64_t>(message, 16, batch);
  if (!choices_.one_in(4)) put<std::uint8_t>(message, 6, choices_.one_in(8) ? std::uint8_t{0} : op);
  return message;
}

Message Answers::refusal(std::uint8_t op, std::uint64_t batch) {
  const auto status = static_cast<std::uint16_t>(1 + choices_.below(9));
  const bool unreadable = choices_.one_in(4);
  const std::size_t field_bytes = choices_.one_in(2) ? 0 : choices_.below(choices_.one_in(2) ? 20 : 140);
  const Message text = rest(choices_.below(choices_.one_in(2) ? 50 : 700));
  const std::size_t shown = std::min(field_bytes, text.size());
  Message message = header(unreadable ? std::uint8_t{0} : op, unreadable ? 0 : batch, status, contract::kRefusalBytes + text.size());
  put<std::uint16_t>(message, 32, static_cast<std::uint16_t>(shown));
  put<std::uint16_t>(message, 34, static_cast<std::uint16_t>(text.size() - shown));
  std::copy(text.begin(), text.end(), message.begin() + 40);
  return message;
}

// A few bytes changed from `from` on, half of them near there; sometimes the end cut off or something behind it.
void Answers::damage(Message& message, std::size_t from) {
  for (std::size_t times = choices_.below(3); times > 0 && message.size() > from; --times) {
    const std::size_t room = message.size() - from;
    const std::size_t near = choices_.one_in(2) ? std::min<std::size_t>(room, 64) : room;
    const std::size_t at = (choices_.below(near) + static_cast<std::size_t>(next())) % near;
    message[from + at] ^= next();
  }
  if (!choices_.one_in(8)) return;
  message.resize(choices_.one_in(2) ? choices_.below(message.size() + 1) : message.size() + 1 + choices_.below(64));
  if (message.size() >= contract::kHeaderBytes && !choices_.one_in(3))
    put<std::uint32_t>(message, 24, static_cast<std::uint32_t>(message.size() - contract::kHeaderBytes));
}

Message Answers::to_open(const contract::OpenAsked& asked) {
  const std::size_t way = choices_.below(3);
  if (way == 0) return arbitrary(contract::kOpen, asked.batch);
  if (way == 1) return refusal(contract::kOpen, asked.batch);
  Message message = header(contract::kOpen, asked.batch, 0, contract::kOpenReplyBytes);
  std::copy(asked.identity.begin(), asked.identity.end(), message.begin() + 32);
  put<std::uint32_t>(message, 32 + 40, asked.batch_rows_max + static_cast<std::uint32_t>(choices_.below(1000)));
  put<std::uint32_t>(message, 32 + 44, static_cast<std::uint32_t>(1 + choices_.below(8)));
  damage(message, 0);
  return message;
}

Message Answers::to_lookup(const contract::LookupAsked& asked, std::uint64_t seed) {
  const std::size_t way = choices_.below(4);
  if (way == 0) return arbitrary(contract::kLookup, asked.batch);
  if (way == 1) return refusal(contract::kLookup, asked.batch);
  constexpr std::size_t kHead = contract::kHeaderBytes + contract::kLookupReplyBytes;
  Message message = header(contract::kLookup, asked.batch, 0, contract::reply_bytes(asked) - contract::kHeaderBytes);
  std::uint64_t rows = 0;
  std::size_t at = kHead;
  for (const std::uint32_t part : asked.rows) {
    rows += part;
    for (const std::uint32_t width : {asked.columns, asked.scales}) {
      std::fill_n(message.begin() + static_cast<std::ptrdiff_t>(at), std::size_t{part} * width, next());
      at += contract::plane(part, width);
    }
  }
  put<std::uint32_t>(message, 32, asked.flags);
  put<std::uint32_t>(message, 36, static_cast<std::uint32_t>(rows));
  if (choices_.one_in(2)) damage(message, kHead);  // what the server itself sent
  if (asked.flags != 0 && message.size() >= kHead) put<std::uint64_t>(message, 40, sum(std::span(message).subspan(kHead), seed));
  if (choices_.one_in(2)) damage(message, 0);
  return message;
}

}  // namespace fuzz
