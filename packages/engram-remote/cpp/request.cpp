#include "request.hpp"

#include <cstdio>

namespace engram {

namespace {

using wire::Code;

Fault bad(std::string field, std::string detail) { return {Code::bad_message, std::move(field), std::move(detail)}; }

std::string field_of(const char* record, std::size_t index, const char* field) {
  return std::string(record).append("[").append(std::to_string(index)).append("].").append(field);
}

Fault not_zero(std::string field) { return bad(std::move(field), "a reserved field must be zero"); }

Fault too_short(const char* record, std::size_t have, std::size_t need) {
  return bad(record, std::to_string(have) + " bytes where the record needs " + std::to_string(need));
}

std::string hexadecimal(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

std::optional<Fault> within(std::string field, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return std::nullopt;
  return bad(std::move(field),
             std::to_string(value) + " is not " + std::to_string(least) + " .. " + std::to_string(most));
}

std::optional<Fault> ends(std::size_t have, std::uint64_t need, std::string field) {
  if (have == need) return std::nullopt;
  return bad(std::move(field), std::to_string(have) + " bytes where " + std::to_string(need) + " are needed");
}

bool known_op(std::uint8_t op) noexcept { return op <= static_cast<std::uint8_t>(wire::Op::stats); }

std::optional<Fault> check_open(const wire::Open& open) {
  if (auto fault = within("open.columns", open.columns, 1, wire::kColumnsMax)) return fault;
  if (auto fault = within("open.scales", open.scales, 1, open.columns)) return fault;
  if (auto fault = within("open.ranks", open.ranks, 1, wire::kRanksMax)) return fault;
  if (auto fault = within("open.rank", open.rank, 0, open.ranks - std::uint64_t{1})) return fault;
  if (auto fault = within("open.layers", open.layers, 1, wire::kLayersMax)) return fault;
  return within("open.batch_rows_max", open.batch_rows_max, 1, wire::kBatchRowsMax);
}

std::optional<Fault> check_layer(const OpenView& open, std::size_t index) {
  const wire::OpenLayer one = open.layer(index);
  if (auto fault = within(field_of("open_layer", index, "row_end"), one.row_end, 0, wire::kRowEndMax)) return fault;
  if (one.row_start > one.row_end)
    return bad(field_of("open_layer", index, "row_start"),
               std::to_string(one.row_start) + " is past the end at " + std::to_string(one.row_end));
  for (std::size_t before = 0; before < index; ++before)
    if (open.layer(before).layer == one.layer)
      return bad(field_of("open_layer", index, "layer"),
                 "layer " + std::to_string(one.layer) + " stands there before");
  return std::nullopt;
}

std::optional<Fault> check_parts(const LookupView& lookup, std::uint64_t& rows) {
  std::uint64_t seen = 0;
  static_assert(wire::kLayersMax == 64, "layers are the bits of a word");
  for (std::size_t index = 0; index < lookup.record.parts; ++index) {
    const wire::LookupPart part = lookup.part(index);
    if (auto fault = within(field_of("lookup_part", index, "layer"), part.layer, 0, wire::kLayersMax - 1)) return fault;
    const std::uint64_t bit = std::uint64_t{1} << part.layer;
    if ((seen & bit) != 0)
      return bad(field_of("lookup_part", index, "layer"),
                 "layer " + std::to_string(part.layer) + " stands there before");
    seen |= bit;
    rows += part.ids;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> parse_header(Bytes message, wire::Header& header) {
  if (message.size() < sizeof header) return too_short("header", message.size(), sizeof header);
  header = wire::load<wire::Header>(message.data());
  if (header.reserved0 != 0) return not_zero("header.reserved0");
  if (header.reserved1 != 0) return not_zero("header.reserved1");
  if (header.reserved2 != 0) return not_zero("header.reserved2");
  if (header.magic != wire::kMagic)
    return bad("header.magic", hexadecimal(header.magic) + " where " + hexadecimal(wire::kMagic) + " is needed");
  if (header.version != wire::kVersion)
    return Fault{Code::version, "header.version",
                 "version " + std::to_string(header.version) + " where " + std::to_string(wire::kVersion) + " is spoken"};
  if (header.kind != static_cast<std::uint8_t>(wire::Kind::request))
    return bad("header.kind", std::to_string(header.kind) + " where 0 REQUEST is needed");
  if (!known_op(header.op) || header.op == 0) return bad("header.op", std::to_string(header.op) + " is no operation");
  if (header.status != 0)
    return bad("header.status", std::to_string(header.status) + " in a request, where 0 is needed");
  return ends(message.size() - sizeof header, header.body_bytes, "header.body_bytes");
}

std::optional<Fault> parse_open(Bytes body, OpenView& open) {
  if (body.size() < sizeof open.record) return too_short("open", body.size(), sizeof open.record);
  open.record = wire::load<wire::Open>(body.data());
  if (open.record.reserved0 != 0) return not_zero("open.reserved0");
  if (open.record.reserved1 != 0) return not_zero("open.reserved1");
  if (auto fault = check_open(open.record)) return fault;
  const std::size_t layers = open.record.layers;
  if (auto fault = ends(body.size(), sizeof open.record + layers * sizeof(wire::OpenLayer), "open.layers")) return fault;
  open.layers = body.data() + sizeof open.record;
  for (std::size_t index = 0; index < layers; ++index)
    if (open.layer(index).reserved0 != 0) return not_zero("open_layer.reserved0");
  for (std::size_t index = 0; index < layers; ++index)
    if (auto fault = check_layer(open, index)) return fault;
  return std::nullopt;
}

std::optional<Fault> parse_lookup(Bytes body, LookupView& lookup) {
  if (body.size() < sizeof lookup.record) return too_short("lookup", body.size(), sizeof lookup.record);
  lookup.record = wire::load<wire::Lookup>(body.data());
  if (lookup.record.reserved0 != 0) return not_zero("lookup.reserved0");
  if ((lookup.record.flags & ~wire::kLookupFlagsAll) != 0)
    return bad("lookup.flags", std::to_string(lookup.record.flags) + " has bits that are not defined");
  if (auto fault = within("lookup.parts", lookup.record.parts, 1, wire::kLayersMax)) return fault;
  const std::size_t ids_at = sizeof lookup.record + lookup.record.parts * sizeof(wire::LookupPart);
  if (body.size() < ids_at)
    return bad("lookup.parts", std::to_string(body.size()) + " bytes where the parts need " + std::to_string(ids_at));
  lookup.heads = body.data() + sizeof lookup.record;
  lookup.ids = body.data() + ids_at;
  std::uint64_t rows = 0;
  if (auto fault = check_parts(lookup, rows)) return fault;
  if (auto fault = ends(body.size(), ids_at + rows * sizeof(std::uint32_t), "lookup_part.ids")) return fault;
  if (auto fault = within("lookup_part.ids", rows, 0, wire::kBatchRowsMax)) return fault;
  lookup.rows = static_cast<std::uint32_t>(rows);
  return std::nullopt;
}

std::optional<Fault> parse_stats(Bytes body) { return ends(body.size(), 0, "stats"); }

Address salvage(Bytes message) noexcept {
  if (message.size() < sizeof(wire::Header)) return {};
  const auto header = wire::load<wire::Header>(message.data());
  if (header.reserved0 != 0 || header.reserved1 != 0 || header.reserved2 != 0) return {};
  if (header.magic != wire::kMagic || header.kind != static_cast<std::uint8_t>(wire::Kind::request)) return {};
  return {known_op(header.op) ? static_cast<wire::Op>(header.op) : wire::Op::unreadable, header.batch};
}

}  // namespace engram
