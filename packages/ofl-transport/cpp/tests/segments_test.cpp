// Frames in segments, without a device: what is gathered from a frame is what a reader makes of it, and a segment that
// breaks a rule is named.

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"
#include "rdma_segments.hpp"

using namespace ofl;
using wire::FrameHeader;
using wire::FrameType;

namespace {

class Keeper final : public Inbox {
 public:
  std::vector<std::vector<std::byte>> bodies;
  std::size_t complete = 0;
  const char* refusal = nullptr;
  bool drop = false;

  Landing landing(const FrameHeader& header) noexcept override {
    if (refusal != nullptr) return {nullptr, refusal};
    bodies.emplace_back(header.body_bytes);
    return {drop ? nullptr : bodies.back().data(), nullptr};
  }
  void completed(const FrameHeader&) noexcept override { ++complete; }
};

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 131 + i / 256);
  return made;
}

std::vector<std::byte> segment_of(const FrameHeader& header, std::size_t body_bytes) {
  std::vector<std::byte> segment(sizeof header + body_bytes);
  std::memcpy(segment.data(), &header, sizeof header);
  return segment;
}

bool says(const char* clause, const char* words) { return clause != nullptr && std::strstr(clause, words) != nullptr; }

// The bytes of a send, wherever its pieces lie.
std::vector<std::byte> bytes_of(const Gather& gather) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : gather.pieces()) bytes.insert(bytes.end(), piece.base, piece.base + piece.bytes);
  return bytes;
}

}  // namespace

TEST(a_frame_that_is_cut_into_segments_comes_out_whole) {
  std::mt19937 random(4);
  std::vector<std::byte> slot(kSegmentBytes);
  for (const std::size_t bytes : {0U, 1U, 16359U, 16360U, 16361U, 100'000U}) {
    const std::vector<std::byte> body = counted(bytes);
    std::vector<Part> parts;
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t length = std::min<std::size_t>(random() % 20'000, bytes - at);
      parts.push_back({length == 0 ? nullptr : body.data() + at, length});
      at += length;
    }
    Outgoing frame(wire::make_header(FrameType::request, 1, bytes), parts);
    SegmentReader reader;
    Keeper keeper;
    while (frame.sent() < frame.size()) {
      Gather gather(slot, nullptr, kGatherMax);
      const std::size_t taken = gather.take(frame, frame.sent(), kSegmentBytes);
      CHECK(taken == std::min<std::size_t>(kSegmentBytes, frame.size() - frame.sent()));
      CHECK(gather.pieces().size() == 1 && !gather.lends());
      CHECK(reader.take(bytes_of(gather), keeper) == nullptr);
      frame.advance(taken);
      CHECK(reader.mid_frame() == (frame.sent() < frame.size()));
    }
    CHECK(keeper.complete == 1 && keeper.bodies[0] == body);
  }
}

TEST(lent_parts_stay_where_they_are_and_short_ones_are_copied) {
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 65536, false, memory));
  const std::byte* const lent = memory->bytes().data();
  const std::vector<std::byte> loose = counted(100);
  const Part parts[] = {{lent, 5000}, {loose.data(), 50}, {lent + 5000, 10}, {lent + 6000, 3000}};
  const Outgoing frame(wire::make_header(FrameType::request, 1, 8060), parts, memory.get());
  std::vector<std::byte> slot(kSegmentBytes);
  Gather gather(slot, memory.get(), kGatherMax);
  CHECK(gather.take(frame, 0, kSegmentBytes) == frame.size());
  // The header; the first part; the loose and the short one in one piece; the last.
  CHECK(gather.pieces().size() == 4 && gather.lends());
  CHECK(!gather.pieces()[0].lent && gather.pieces()[0].bytes == sizeof(FrameHeader));
  CHECK(gather.pieces()[1].lent && gather.pieces()[1].base == lent);
  CHECK(!gather.pieces()[2].lent && gather.pieces()[2].bytes == 60);
  CHECK(gather.pieces()[3].lent && gather.pieces()[3].base == lent + 6000);
}

TEST(a_send_ends_short_where_a_device_takes_no_more_pieces) {
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 65536, false, memory));
  const std::byte* const lent = memory->bytes().data();
  const Part parts[] = {{lent, 3000}, {lent + 4000, 3000}, {lent + 8000, 3000}};
  const Outgoing frame(wire::make_header(FrameType::request, 1, 9000), parts, memory.get());
  std::vector<std::byte> slot(kSegmentBytes);
  for (const std::size_t pieces_max : {1U, 2U, 3U}) {
    Gather gather(slot, memory.get(), pieces_max);
    CHECK(gather.take(frame, 0, kSegmentBytes) == sizeof(FrameHeader) + 3000 * (pieces_max - 1));
    CHECK(gather.pieces().size() == pieces_max);
  }
  CHECK(can_gather_body(frame, *memory, 3));
  CHECK(!can_gather_body(frame, *memory, 2));
}

TEST(a_small_frame_is_taken_where_it_lies) {
  const std::vector<std::byte> body = counted(30);
  const Part parts[] = {{body.data(), 10}, {nullptr, 0}, {body.data() + 10, 20}};
  const Outgoing frame(wire::make_header(FrameType::request, 1, 30), parts);
  Gather gather({}, nullptr, 4);
  gather.take_in_place(frame);
  CHECK(gather.pieces().size() == 3 && !gather.lends());
  CHECK(gather.pieces()[1].base == body.data() && gather.pieces()[2].base == body.data() + 10);
  SegmentReader reader;
  Keeper keeper;
  CHECK(reader.take(bytes_of(gather), keeper) == nullptr);
  CHECK(keeper.complete == 1 && keeper.bodies[0] == body);
}

TEST(a_body_is_gathered_whole_only_if_what_is_copied_fits_a_slot) {
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 65536, false, memory));
  const std::vector<std::byte> loose = counted(kSegmentBytes + 1);
  Part parts[] = {{loose.data(), kSegmentBytes}, {memory->bytes().data(), 65536}};
  CHECK(can_gather_body(Outgoing(wire::make_header(FrameType::reply, 1, kSegmentBytes + 65536), parts), *memory, 2));
  parts[0].bytes = kSegmentBytes + 1;
  CHECK(!can_gather_body(Outgoing(wire::make_header(FrameType::reply, 1, kSegmentBytes + 65537), parts), *memory, 2));
  CHECK(!can_gather_body(Outgoing(wire::make_header(FrameType::reply, 1, 10), {parts, 1}), *memory, 2));  // nothing lent
}

TEST(segments_that_break_a_rule_are_named) {
  Keeper keeper;
  CHECK(says(SegmentReader().take(std::vector<std::byte>(sizeof(FrameHeader) - 1), keeper), "shorter than a header"));
  FrameHeader header = wire::make_header(FrameType::request, 1, 0);
  header.flags = 0x80;
  CHECK(says(SegmentReader().take(segment_of(header, 0), keeper), "flags"));
  CHECK(says(SegmentReader().take(segment_of(wire::make_header(FrameType::request, 1, 5), 6), keeper), "goes on after the end"));
  SegmentReader reader;
  CHECK(reader.take(segment_of(wire::make_header(FrameType::request, 1, 20), 10), keeper) == nullptr);
  CHECK(says(reader.take(std::vector<std::byte>(11), keeper), "goes on after the end"));
  CHECK(keeper.complete == 0);
  keeper.refusal = "not now";
  CHECK(says(SegmentReader().take(segment_of(wire::make_header(FrameType::request, 1, 0), 0), keeper), "not now"));
}

TEST(a_body_that_nobody_wants_is_dropped) {
  Keeper keeper;
  keeper.drop = true;
  SegmentReader reader;
  CHECK(reader.take(segment_of(wire::make_header(FrameType::request, 1, 20), 10), keeper) == nullptr);
  CHECK(reader.take(std::vector<std::byte>(10, std::byte{1}), keeper) == nullptr);
  CHECK(keeper.complete == 1 && keeper.bodies[0] == std::vector<std::byte>(20));
  keeper.drop = false;
  CHECK(reader.take(segment_of(wire::make_header(FrameType::request, 2, 20), 10), keeper) == nullptr);
  reader.retract(keeper.bodies[1].data());
  CHECK(reader.take(std::vector<std::byte>(10, std::byte{1}), keeper) == nullptr);
  CHECK(keeper.complete == 2 && keeper.bodies[1] == std::vector<std::byte>(20));
}
