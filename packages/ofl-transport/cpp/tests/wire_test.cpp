// The rules of the wire format, field by field.

#include <cstring>
#include <random>

#include "check.hpp"
#include "wire.hpp"

using namespace ofl::wire;

namespace {

FrameHeader valid(FrameType type = FrameType::request) {
  const bool call = type == FrameType::request || type == FrameType::reply || type == FrameType::cancel ||
                    type == FrameType::cancelled;
  return make_header(type, call ? 1 : 0, 0);
}

bool names(const char* fault, const char* field) { return fault != nullptr && std::strstr(fault, field) != nullptr; }

ConnectBody valid_offer() {
  ConnectBody body{};
  body.boot_nonce = 1;
  body.frame_bytes_max = 65536;
  body.version_min = 1;
  body.version_max = 2;
  body.heartbeat_ms = 100;
  body.loss_ms = 2000;
  body.transport = 1;
  std::memcpy(body.service, "echo", 4);
  return body;
}

}  // namespace

TEST(the_header_lies_on_the_wire_as_documented) {
  const FrameHeader header = make_header(FrameType::reply, 0x0102030405060708, 0x0A0B0C0D);
  const unsigned char expected[24] = {'O', 'F', 'L', '1', 2, 5, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x0D, 0x0C, 0x0B, 0x0A, 0, 0, 0, 0};
  CHECK(std::memcmp(&header, expected, sizeof expected) == 0);
}

TEST(valid_headers_have_no_fault) {
  CHECK(header_fault(valid()) == nullptr);
  CHECK(header_fault(valid(FrameType::heartbeat)) == nullptr);
  CHECK(header_fault(make_header(FrameType::connect, 0, sizeof(ConnectBody))) == nullptr);
  CHECK(header_fault(make_header(FrameType::accept, 0, sizeof(AcceptBody))) == nullptr);
  CHECK(header_fault(make_header(FrameType::request, 1, 0xFFFFFFFF)) == nullptr);
  CHECK(header_fault(make_header(FrameType::request, 1, sizeof(PlacementRecord), kPlaced)) == nullptr);
  CHECK(header_fault(valid(FrameType::cancelled)) == nullptr);
  CHECK(header_fault(make_header(FrameType::challenge, 0, sizeof(ChallengeBody))) == nullptr);
  CHECK(header_fault(make_header(FrameType::proof, 0, sizeof(ProofBody))) == nullptr);
  CHECK(header_fault(make_header(FrameType::link, 0, sizeof(RdmaLinkBody))) == nullptr);
  CHECK(header_fault(make_header(FrameType::link, 0, sizeof(ShmLinkBody))) == nullptr);
}

TEST(a_fault_names_its_field) {
  FrameHeader header = valid();
  header.magic ^= 1;
  CHECK(names(header_fault(header), "magic"));
  header = valid();
  header.header_version = 1;
  CHECK(header_fault(header) == kHeaderVersionFault);
  header = valid();
  header.type = 0;
  CHECK(names(header_fault(header), "type"));
  header = valid();
  header.type = 13;
  CHECK(names(header_fault(header), "type"));
  header = valid();
  header.flags = 2;
  CHECK(names(header_fault(header), "flags"));
  header = valid(FrameType::reply);
  header.flags = kPlaced;
  CHECK(names(header_fault(header), "flags"));
  header = valid();
  header.reserved = 1;
  CHECK(names(header_fault(header), "reserved"));
  header = valid();
  header.sequence = 0;
  CHECK(names(header_fault(header), "sequence"));
  header = valid(FrameType::heartbeat);
  header.sequence = 1;
  CHECK(names(header_fault(header), "sequence"));
  header = valid(FrameType::cancel);
  header.body_bytes = 1;
  CHECK(names(header_fault(header), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::connect, 0, 127)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::accept, 0, 55)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::challenge, 0, 31)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::proof, 0, 33)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::link, 0, 17)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::cancelled, 1, 1)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::request, 1, 15, kPlaced)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::refuse, 0, 7)), "body_bytes"));
  CHECK(names(header_fault(make_header(FrameType::close, 0, kTextBytesMax + 1)), "body_bytes"));
}

TEST(any_header_bytes_are_judged_without_reading_past_them) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    FrameHeader header{};
    const std::uint64_t words[3] = {random(), random(), random()};
    std::memcpy(&header, words, sizeof header);
    if (i % 2 == 0) header.magic = kMagic;
    const char* fault = header_fault(header);
    CHECK(fault == nullptr || std::strlen(fault) > 0);
  }
}

TEST(an_offer_is_judged_field_by_field) {
  CHECK(connect_fault(valid_offer()) == nullptr);
  ConnectBody body = valid_offer();
  body.version_min = 3;
  CHECK(names(connect_fault(body), "version_min"));
  body = valid_offer();
  body.frame_bytes_max = kFrameBytesMin - 1;
  CHECK(names(connect_fault(body), "frame_bytes_max"));
  body = valid_offer();
  body.heartbeat_ms = kHeartbeatMsMin - 1;
  CHECK(names(connect_fault(body), "heartbeat_ms"));
  body = valid_offer();
  body.loss_ms = 199;
  CHECK(names(connect_fault(body), "loss_ms"));
  body = valid_offer();
  body.reserved = 1;
  CHECK(names(connect_fault(body), "reserved"));
  body = valid_offer();
  body.reserved_2 = 1;
  CHECK(names(connect_fault(body), "reserved"));
  for (const std::uint8_t unknown : {std::uint8_t{0}, std::uint8_t{4}, std::uint8_t{255}}) {
    body = valid_offer();
    body.transport = unknown;
    CHECK(names(connect_fault(body), "transport"));
  }
  body = valid_offer();
  body.authentication = 2;
  CHECK(names(connect_fault(body), "authentication"));
  body = valid_offer();
  body.service[0] = '\0';
  CHECK(names(connect_fault(body), "service"));
  body = valid_offer();
  body.service[1] = '\n';
  CHECK(names(connect_fault(body), "service"));
  body = valid_offer();
  body.service[60] = 'x';
  CHECK(names(connect_fault(body), "service"));
  body = valid_offer();
  std::memset(body.service, 'x', sizeof body.service);
  CHECK(connect_fault(body) == nullptr);
  CHECK(service_of(body).size() == kServiceBytes);
}

TEST(an_answer_must_stay_within_the_offer) {
  const ConnectBody offer = valid_offer();
  AcceptBody good{};
  good.boot_nonce = 7;
  good.frame_bytes_max = 65536;
  good.version = 2;
  good.calls_max = 256;
  good.transport = offer.transport;
  CHECK(accept_fault(good, offer) == nullptr);
  AcceptBody body = good;
  body.version = 3;
  CHECK(names(accept_fault(body, offer), "version"));
  body = good;
  body.frame_bytes_max = 65537;
  CHECK(names(accept_fault(body, offer), "frame_bytes_max"));
  body = good;
  body.calls_max = 0;
  CHECK(names(accept_fault(body, offer), "calls_max"));
  body = good;
  body.calls_max = kSlots + 1;
  CHECK(names(accept_fault(body, offer), "calls_max"));
  body = good;
  body.transport = 2;
  CHECK(names(accept_fault(body, offer), "transport"));
  body = good;
  body.authentication = 1;  // nobody asked for it
  CHECK(names(accept_fault(body, offer), "authentication"));
  body = good;
  body.reserved_2 = 1;
  CHECK(names(accept_fault(body, offer), "reserved"));
}

TEST(an_answer_without_the_proof_that_was_asked_for_is_a_fault) {
  ConnectBody offer = valid_offer();
  offer.authentication = 1;
  AcceptBody answer{7, 65536, 2, 0, 256, 1, 0, 0, {}};
  CHECK(names(accept_fault(answer, offer), "authentication"));
  answer.authentication = 1;
  CHECK(accept_fault(answer, offer) == nullptr);
}

TEST(a_sequence_number_is_a_slot_and_its_generation) {
  for (const std::uint64_t sequence : {1ULL, 255ULL, 256ULL, 257ULL, 1ULL << 40, ~0ULL}) {
    const Slot slot = slot_of(sequence);
    CHECK(slot.index < kSlots);
    CHECK(sequence_of(slot) == sequence);
  }
  CHECK(slot_of(1).index == slot_of(257).index);
  CHECK(slot_of(1).generation != slot_of(257).generation);
}

TEST(text_of_a_peer_is_made_printable_and_short) {
  CHECK(printable("plain text") == "plain text");
  CHECK(printable(std::string_view("a\0\n\xC3\xA9z", 6)) == "a????z");
  CHECK(printable(std::string(1000, 'x')).size() == kTextBytesMax);
}
