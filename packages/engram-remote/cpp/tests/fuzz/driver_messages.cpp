// The messages of the contract, for the fuzz driver's mutations.

#include <cstring>
#include <vector>

#include "driver.hpp"
#include "wire.hpp"

namespace fuzz {

namespace {

namespace wire = engram::wire;

constexpr std::uint64_t kNumbers[] = {
    0, 1, 2, 3, 4, 7, 8, 9, 10, 16, 24, 31, 32, 33, 39, 40, 47, 48, 55, 56, 63, 64, 65, 79, 80, 127, 128, 129, 255, 256,
    511, 512, 513, 1023, 1024, 1025, 65535, 65536, 65537, 16777215, 16777216, 16777217, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE,
    0xFFFFFFFF, 1ULL << 32, (1ULL << 32) + 1, 1ULL << 62, ~0ULL};

std::size_t below(std::size_t limit, Random& random) { return static_cast<std::size_t>(random() % limit); }

template <typename Record>
void append(Input& message, const Record& record) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&record);
  message.insert(message.end(), bytes, bytes + sizeof record);
}

// A sound LOOKUP of up to four parts.
Input any_lookup(Random& random) {
  const auto parts = static_cast<std::uint16_t>(1 + below(4, random));
  std::vector<std::uint32_t> counts(parts);
  std::size_t rows = 0;
  for (std::uint32_t& count : counts) rows += count = static_cast<std::uint32_t>(below(5, random));
  Input message;
  append(message, wire::make_header(wire::Op::lookup, wire::Kind::request, wire::Code::ok, random(),
                                    sizeof(wire::Lookup) + parts * sizeof(wire::LookupPart) + rows * 4));
  append(message, wire::Lookup{.flags = static_cast<std::uint32_t>(below(2, random)), .parts = parts, .reserved0 = 0});
  for (std::uint32_t i = 0; i < parts; ++i) append(message, wire::LookupPart{.layer = i, .ids = counts[i]});
  for (; rows > 0; --rows) append(message, static_cast<std::uint32_t>(below(100, random)));
  return message;
}

// Any header, of either kind, with bytes behind it.
Input any_message(Random& random) {
  if (below(2, random) == 0) return any_lookup(random);
  const std::size_t bytes = below(120, random);
  Input message;
  append(message, wire::make_header(static_cast<wire::Op>(below(4, random)), static_cast<wire::Kind>(below(2, random)),
                                    static_cast<wire::Code>(below(wire::kCodes, random)), random(), bytes));
  message.resize(message.size() + bytes, static_cast<std::uint8_t>(random()));
  return message;
}

constexpr Format kMessages{wire::kMagic, sizeof(wire::Header), kNumbers, any_message};

}  // namespace

const Format& format() { return kMessages; }

}  // namespace fuzz
