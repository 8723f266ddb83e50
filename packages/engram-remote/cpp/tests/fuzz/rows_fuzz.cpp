// Fuzz target: lookups with any ids to what a server gathers their rows with, in pieces of any size and in any order.
//
//     Whatever ids are asked for, no byte outside of the tables is read and none outside of the reply written; the planes hold
//     exactly the rows that were asked for, with zeros between them, or the first bad id is named.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "request_judge.hpp"
#include "server_lookup.hpp"

namespace {

// A table whose rows can be told from one another.
class Held {
 public:
  Held(std::uint32_t layer, std::uint32_t columns, std::uint32_t scales, fuzz::Choices& choices)
      : rows_(choices.below(20)), packed_(rows_ * (columns + scales)) {
    table.layer = layer;
    table.rows.packed = packed_.data();
    const std::uint64_t last = contract::kNoRow - rows_;
    table.rows.row_start = choices.one_in(4) ? last - choices.below(2) : choices.below(100);
    table.rows.row_end = table.rows.row_start + rows_;
    table.rows.columns = columns;
    table.rows.scales = scales;
    for (std::size_t i = 0; i < packed_.bytes(); ++i)
      packed_.data()[i] = static_cast<std::byte>(i / (columns + scales) * 31 + i * 7 + layer + 1);
  }

  bool has(std::uint32_t id) const { return id >= table.rows.row_start && id < table.rows.row_end; }
  // Bytes of a plane for one id.
  std::vector<std::byte> of(std::uint32_t id, bool scales) const {
    const std::size_t width = scales ? table.rows.scales : table.rows.columns;
    if (id == contract::kNoRow) return std::vector<std::byte>(width, std::byte{0});
    const std::size_t row_bytes = table.rows.columns + table.rows.scales;
    const std::byte* const from =
        packed_.data() + (id - table.rows.row_start) * row_bytes + (scales ? std::size_t{table.rows.columns} : 0);
    return {from, from + width};
  }

  engram::Table table;

 private:
  std::size_t rows_;
  fuzz::LandingMemory packed_;
};

class Rig {
 public:
  Rig(fuzz::Bytes stream, fuzz::Choices& choices) : stream_(stream), choices_(choices) {
    const auto columns = static_cast<std::uint32_t>(1 + choices_.below(choices_.one_in(2) ? 20 : 300));
    const auto scales = static_cast<std::uint32_t>(1 + choices_.below(std::min<std::size_t>(columns, 70)));
    const std::size_t layers = choices_.one_in(16) ? 64 : 1 + choices_.below(4);
    for (std::uint32_t i = 0; i < layers; ++i) {
      tables_.push_back(std::make_unique<Held>(i, columns, scales, choices_));
      session_->layers.push_back(&tables_.back()->table);
    }
  }

  void run() {
    write();
    auto message = std::make_unique<fuzz::Copy>(std::as_bytes(std::span(body_)));
    engram::LookupView view;
    HOLDS(!engram::parse_lookup(message->bytes(), view), "it is a lookup");
    engram::Lookup lookup;
    lookup.session = session_;
    lookup.take(view, *session_);
    HOLDS(lookup.rows == ids_.size(), "rows are those of all parts");
    if (choices_.one_in(2)) {
      lookup.copy_ids();
      message.reset();
    }
    const fuzz::LandingMemory reply(lookup.reply_bytes);
    engram::ReplyBuffer buffer;
    buffer.base = reply.data();
    lookup.place(&buffer);
    lookup.cut(static_cast<std::uint32_t>(1 + choices_.below(choices_.one_in(2) ? 3 : 100)));
    for (std::size_t i = lookup.pieces.size(); i > 1; --i) std::swap(lookup.pieces[i - 1], lookup.pieces[choices_.below(i)]);
    for (const engram::Lookup::Piece& piece : lookup.pieces) lookup.fill(piece);
    judge(lookup, reply);
  }

 private:
  std::uint8_t next() {
    if (stream_.empty()) return 0;
    const std::uint8_t byte = stream_.front();
    stream_ = stream_.subspan(1);
    return byte;
  }

  // Mostly a row of the table; what the client calls no row, the ids beside the table, and any other.
  std::uint32_t id_of(const Held& held) {
    const std::uint8_t word = next();
    const engram::Rows& rows = held.table.rows;
    if (word == 0xFF) return contract::kNoRow;
    if (word == 0xFE) return static_cast<std::uint32_t>(rows.row_start - 1);
    if (word == 0xFD) return static_cast<std::uint32_t>(rows.row_end);
    if (word == 0xFC) return static_cast<std::uint32_t>(next()) << 24U | static_cast<std::uint32_t>(next());
    if (rows.row_end == rows.row_start) return contract::kNoRow;
    return static_cast<std::uint32_t>(rows.row_start + word % (rows.row_end - rows.row_start));
  }

  void append(std::uint32_t number) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&number);
    body_.insert(body_.end(), bytes, bytes + sizeof number);
  }

  void write() {
    const std::size_t parts = 1 + choices_.below(tables_.size());
    const std::size_t first = choices_.below(tables_.size());
    append(0);
    append(static_cast<std::uint32_t>(parts));
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t layer = (first + i) % tables_.size();
      const std::size_t count = next() % 40U;
      append(static_cast<std::uint32_t>(layer));
      append(static_cast<std::uint32_t>(count));
      parts_.push_back({tables_[layer].get(), count});
    }
    for (const auto& [held, count] : parts_)
      for (std::size_t i = 0; i < count; ++i) {
        ids_.push_back(id_of(*held));
        append(ids_.back());
      }
  }

  void judge(const engram::Lookup& lookup, const fuzz::LandingMemory& reply) const {
    std::size_t at = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part)
      for (std::size_t i = 0; i < parts_[part].count; ++i, ++at)
        if (ids_[at] != contract::kNoRow && !parts_[part].held->has(ids_[at]))
          return judge_bad_id(lookup, part, i, ids_[at]);
    HOLDS(lookup.bad_id.load() == engram::kAllRowsFound, "ids of the shard are no fault");
    HOLDS(lookup.absent() == static_cast<std::uint64_t>(std::count(ids_.begin(), ids_.end(), contract::kNoRow)),
          "what has no row is counted");
    judge_planes(reply);
  }

  void judge_bad_id(const engram::Lookup& lookup, std::size_t part, std::size_t position, std::uint32_t id) const {
    HOLDS(lookup.bad_id.load() != engram::kAllRowsFound, "a bad id is refused");
    const engram::Fault fault = lookup.bad_id_fault();
    HOLDS(static_cast<std::uint16_t>(fault.code) == contract::kBadId, "a bad id has its own status");
    HOLDS(fault.field == "lookup_part[" + std::to_string(part) + "].ids", "the part of the first bad id is named");
    HOLDS(fault.detail.starts_with(std::to_string(id) + " at position " + std::to_string(position) + " "),
          "the clause says which id, and where");
  }

  void judge_planes(const fuzz::LandingMemory& reply) const {
    const std::byte* at = reply.data() + contract::kHeaderBytes + contract::kLookupReplyBytes;
    auto id = ids_.begin();
    for (const auto& [held, count] : parts_) {
      for (const bool scales : {false, true}) {
        const std::size_t width = scales ? held->table.rows.scales : held->table.rows.columns;
        std::vector<std::byte> plane;
        for (std::size_t i = 0; i < count; ++i) {
          const std::vector<std::byte> row = held->of(id[static_cast<std::ptrdiff_t>(i)], scales);
          plane.insert(plane.end(), row.begin(), row.end());
        }
        plane.resize(contract::plane(count, width), std::byte{0});
        HOLDS(std::equal(plane.begin(), plane.end(), at), "a plane is the rows that were asked for, and zeros");
        at += plane.size();
      }
      id += static_cast<std::ptrdiff_t>(count);
    }
    HOLDS(at == reply.data() + reply.bytes(), "planes fill the reply");
  }

  struct Part {
    const Held* held;
    std::size_t count;
  };

  fuzz::Bytes stream_;
  fuzz::Choices& choices_;
  std::vector<std::unique_ptr<Held>> tables_;
  std::shared_ptr<engram::Session> session_ = std::make_shared<engram::Session>();
  std::vector<std::uint8_t> body_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  Rig(stream, choices).run();
  return 0;
}
