// The first inputs of the fuzzer, one for each thing that a peer may say: valid messages, written with the library's own
// header, and bytes of which targets make the rest.
//
//     engram_fuzz_seeds FOLDER

#include <cstdint>
#include <string>
#include <vector>

#include "seed_files.hpp"
#include "wire.hpp"

namespace {

namespace wire = engram::wire;

// An input: choices, then a message.
class Input : public fuzz::SeedInput {
 public:
  explicit Input(std::uint64_t choices) : SeedInput(choices) {}

  template <typename Record>
  Input& put(const Record& record) {
    add(&record, sizeof record);
    return *this;
  }
  Input& text(const std::string& text) {
    add(text.data(), text.size());
    return *this;
  }
  Input& header(wire::Op op, wire::Kind kind, std::size_t body_bytes, wire::Code code = wire::Code::ok) {
    return put(wire::make_header(op, kind, code, 7, body_bytes));
  }
};

Input open(std::uint64_t choices, std::uint16_t layers) {
  Input input(choices);
  input.header(wire::Op::open, wire::Kind::request, sizeof(wire::Open) + layers * sizeof(wire::OpenLayer));
  wire::Open record{};
  record.identity.fill(0x11);
  record.columns = 256;
  record.scales = 8;
  record.rank = 1;
  record.ranks = 2;
  record.layers = layers;
  record.batch_rows_max = 4096;
  input.put(record);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    input.put(wire::OpenLayer{.row_start = 5, .row_end = 1000 + layer, .layer = layer, .reserved0 = 0});
  return input;
}

Input lookup(std::uint64_t choices, const std::vector<std::vector<std::uint32_t>>& parts, std::uint32_t flags = 0) {
  std::size_t bytes = sizeof(wire::Lookup) + parts.size() * sizeof(wire::LookupPart);
  for (const auto& ids : parts) bytes += ids.size() * sizeof(std::uint32_t);
  Input input(choices);
  input.header(wire::Op::lookup, wire::Kind::request, bytes);
  input.put(wire::Lookup{.flags = flags, .parts = static_cast<std::uint16_t>(parts.size()), .reserved0 = 0});
  for (std::uint32_t layer = 0; layer < parts.size(); ++layer)
    input.put(wire::LookupPart{.layer = layer, .ids = static_cast<std::uint32_t>(parts[layer].size())});
  for (const auto& ids : parts)
    for (const std::uint32_t id : ids) input.put(id);
  return input;
}

Input refusal(std::uint64_t choices, wire::Op op, wire::Code code, const std::string& field, const std::string& detail) {
  Input input(choices);
  input.header(op, wire::Kind::reply, sizeof(wire::Refusal) + field.size() + detail.size(), code);
  input.put(wire::Refusal{.field_bytes = static_cast<std::uint16_t>(field.size()),
                          .detail_bytes = static_cast<std::uint16_t>(detail.size()),
                          .reserved0 = 0});
  return input.text(field).text(detail);
}

Input open_reply(std::uint64_t choices) {
  Input input(choices);
  input.header(wire::Op::open, wire::Kind::reply, sizeof(wire::OpenReply));
  wire::OpenReply record{};
  record.identity.fill(0x11);
  record.boot = 0x0123456789ABCDEF;
  record.batch_rows_max = 4096;
  record.calls_max = 4;
  return input.put(record);
}

std::vector<Input> inputs() {
  std::vector<Input> all;
  // Targets decide by the choices what they make of the bytes: each message comes with several.
  for (std::uint64_t choices = 100; choices < 108; ++choices) {
    for (const std::uint16_t layers : {std::uint16_t{1}, std::uint16_t{3}, std::uint16_t{64}}) all.push_back(open(choices, layers));
    all.push_back(lookup(choices, {{1, 2, 3}, {}, {wire::kNoRow, 7}}, wire::kChecksum));
    all.push_back(lookup(choices, {{}}));
    all.push_back(lookup(choices, std::vector<std::vector<std::uint32_t>>(6)));
    all.push_back(lookup(choices, std::vector<std::vector<std::uint32_t>>(20)));
    all.push_back(lookup(choices, std::vector<std::vector<std::uint32_t>>(64, {9})));
    all.push_back(Input(choices).header(wire::Op::stats, wire::Kind::request, 0));
    all.push_back(open_reply(choices));
    all.push_back(refusal(choices, wire::Op::open, wire::Code::identity, "open.identity", "the server has another"));
    all.push_back(refusal(choices, wire::Op::lookup, wire::Code::limit, "lookup_part.ids", "too many \u00e9"));
    all.push_back(refusal(choices, wire::Op::unreadable, wire::Code::bad_message, "header.magic", "what"));
  }
  // Bytes that targets fill replies with, and change them by.
  for (std::uint64_t choices = 200; choices < 260; ++choices) {
    std::string text;
    for (std::uint64_t i = 0; i < 40 + choices; ++i) text += static_cast<char>(i * choices >> 2U);
    all.push_back(Input(choices).text(text));
  }
  return all;
}

}  // namespace

int main(int count, char** words) { return fuzz::write_seeds(count, words, inputs()); }
