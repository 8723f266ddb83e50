#include "client_frame.hpp"

#include "check.hpp"
#include "checksum.hpp"
#include "shard_files.hpp"

using namespace engram;

namespace {

constexpr std::uint64_t kAskedSum = 0x0123456789ABCDEFU;

ClientSettings settings_of(bool checksums = false) {
  ClientSettings settings;
  settings.host = "127.0.0.1";
  settings.transport = OFL_TCP;
  settings.layers = {shard_files::spec_of("a", 1000), shard_files::spec_of("b", 500)};
  settings.layers[1].layer = 15;
  settings.identity.fill(0x11);
  settings.rank = 1;
  settings.ranks = 2;
  settings.columns = 256;
  settings.scales = 8;
  settings.batch_rows_max = 4096;
  settings.checksum = checksums;
  return settings;
}

struct Asked {
  std::vector<std::int32_t> first{1000, 999, 1999, 2000, -1};
  std::vector<std::int32_t> second{1400};
  engram_batch batches[2] = {{second.data(), 1, 1}, {first.data(), 5, 0}};
  ClientLookup lookup{{batches, 2}, 6};
};

std::vector<std::byte> good_reply(const ClientSettings& settings, const Asked& asked, std::uint64_t batch) {
  std::vector<std::byte> body(body_bytes(asked.lookup.batches, settings.columns, settings.scales));
  std::size_t at = wire::kHeadBytes;
  for (const std::size_t rows : {std::size_t{1}, std::size_t{5}}) {
    std::memset(body.data() + at, 7, rows * 256);
    std::memset(body.data() + at + rows * 256, 7, rows * 8);
    at += rows * 256 + 64;  // of scales and the zeros behind them
  }
  wire::LookupReply reply{settings.checksum ? wire::kChecksum : 0U, 6, 0, 5, 0};
  if (settings.checksum) reply.checksum = checksum(body.data() + wire::kHeadBytes, body.size() - wire::kHeadBytes, kAskedSum);
  wire::store(wire::make_header(wire::Op::lookup, wire::Kind::reply, wire::Code::ok, batch, body.size() - sizeof(wire::Header)),
              body.data());
  wire::store(reply, body.data() + sizeof(wire::Header));
  return body;
}

std::vector<std::byte> refusal(wire::Op op, wire::Code code, std::uint64_t batch, const std::string& field,
                               const std::string& detail) {
  const std::size_t bytes = sizeof(wire::Refusal) + field.size() + detail.size();
  std::vector<std::byte> body(sizeof(wire::Header) + bytes);
  wire::store(wire::make_header(op, wire::Kind::reply, code, batch, bytes), body.data());
  wire::store(wire::Refusal{static_cast<std::uint16_t>(field.size()), static_cast<std::uint16_t>(detail.size()), 0},
              body.data() + sizeof(wire::Header));
  std::memcpy(body.data() + sizeof(wire::Header) + sizeof(wire::Refusal), field.data(), field.size());
  std::memcpy(body.data() + sizeof(wire::Header) + sizeof(wire::Refusal) + field.size(), detail.data(), detail.size());
  return body;
}

Reason judged(const std::vector<std::byte>& body, const ClientSettings& settings, const Asked& asked) {
  return judge_lookup(body, settings, asked.lookup, body_bytes(asked.lookup.batches, 256, 8), 42, kAskedSum);
}

}  // namespace

TEST(a_lookup_sends_global_ids_and_no_row_for_those_outside_the_shard) {
  const ClientSettings settings = settings_of();
  const Asked asked;
  std::vector<std::byte> room(settings.request_bytes_max());
  const LookupRequest request = write_lookup(room, settings, asked.lookup, 42);
  CHECK(request.bytes == 32 + 8 + 2 * 8 + 6 * 4);
  CHECK(request.out_of_shard == 3);
  const auto header = wire::load<wire::Header>(room.data());
  CHECK(header.magic == wire::kMagic && header.op == 2 && header.kind == 0 && header.status == 0 && header.batch == 42);
  CHECK(header.body_bytes == request.bytes - 32);
  const auto lookup = wire::load<wire::Lookup>(room.data() + 32);
  CHECK(lookup.flags == 0 && lookup.parts == 2);
  const auto part = wire::load<wire::LookupPart>(room.data() + 40);
  CHECK(part.layer == 1 && part.ids == 1);
  const std::uint32_t wanted[] = {1400, 1000, wire::kNoRow, 1999, wire::kNoRow, wire::kNoRow};
  CHECK(std::memcmp(room.data() + 56, wanted, sizeof wanted) == 0);
}

TEST(a_reply_is_taken_only_as_it_must_be) {
  for (const bool checksums : {false, true}) {
    if (checksums && !checksum_available()) continue;
    const ClientSettings settings = settings_of(checksums);
    const Asked asked;
    const std::vector<std::byte> good = good_reply(settings, asked, 42);
    CHECK(judged(good, settings, asked) == Reason::none);
    // Every byte of the head counts, but those of gather_ns, which is the server's own affair.
    for (std::size_t i = 0; i < wire::kHeadBytes; ++i) {
      const bool told = i >= 48 && i < 56;
      std::vector<std::byte> other = good;
      other[i] ^= std::byte{1};
      CHECK((judged(other, settings, asked) == Reason::none) == told);
    }
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{31}, good.size() - 1}) {
      const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
      CHECK(judged(cut, settings, asked) == Reason::bad_reply);
    }
  }
}

TEST(a_changed_byte_of_a_plane_is_seen_with_checksums_alone) {
  if (!checksum_available()) SKIP("this build has no checksums");
  const Asked asked;
  for (const bool checksums : {false, true}) {
    const ClientSettings settings = settings_of(checksums);
    for (const std::size_t at : {wire::kHeadBytes, wire::kHeadBytes + 1000}) {
      std::vector<std::byte> body = good_reply(settings, asked, 42);
      body[at] ^= std::byte{0x80};
      CHECK(judged(body, settings, asked) == (checksums ? Reason::checksum : Reason::none));
    }
  }
}

TEST(a_refusal_is_known_by_its_code) {
  const ClientSettings settings = settings_of();
  const Asked asked;
  CHECK(judged(refusal(wire::Op::lookup, wire::Code::draining, 42, "header.op", "shutting down"), settings, asked) ==
        refused_with(wire::Code::draining));
  CHECK(std::string(kReasonNames[static_cast<std::size_t>(refused_with(wire::Code::draining))]) == "refused_draining");
  CHECK(judged(refusal(wire::Op::unreadable, wire::Code::bad_message, 0, "header.magic", "what"), settings, asked) ==
        refused_with(wire::Code::bad_message));
  CHECK(judged(refusal(wire::Op::lookup, wire::Code::limit, 41, "f", "d"), settings, asked) == Reason::bad_reply);
}

TEST(a_refusal_that_breaks_the_contract_is_none) {
  const ClientSettings settings = settings_of();
  const Asked asked;
  const auto both_refuse = [&](const std::vector<std::byte>& to_lookup) {
    std::vector<std::byte> to_open = to_lookup;
    to_open[offsetof(wire::Header, op)] = std::byte{1};
    CHECK(judged(to_lookup, settings, asked) == Reason::bad_reply);
    CHECK(judge_open(to_open, settings, 42).outcome.status == ENGRAM_LOST);
    CHECK(!judge_open(to_open, settings, 42).final);
  };
  const std::vector<std::byte> sound = refusal(wire::Op::lookup, wire::Code::limit, 42, "f", "d");
  CHECK(judged(sound, settings, asked) == refused_with(wire::Code::limit));
  for (const std::size_t at : {32U, 33U, 34U, 35U, 36U, 39U}) {  // lengths that are not the texts', and the reserved field
    std::vector<std::byte> other = sound;
    other[at] ^= std::byte{4};
    both_refuse(other);
  }
  std::vector<std::byte> header(sizeof(wire::Header));  // and nothing behind it
  wire::store(wire::make_header(wire::Op::lookup, wire::Kind::reply, wire::Code::limit, 42, 0), header.data());
  both_refuse(header);
  // 128 and 512 bytes are the most; a field is ASCII, a clause UTF-8.
  const auto limited = [](const std::string& field, const std::string& detail) {
    return refusal(wire::Op::lookup, wire::Code::limit, 42, field, detail);
  };
  CHECK(judged(limited(std::string(128, 'f'), std::string(512, 'd')), settings, asked) == refused_with(wire::Code::limit));
  CHECK(judged(limited("", "\u00e9"), settings, asked) == refused_with(wire::Code::limit));
  both_refuse(limited(std::string(129, 'f'), "d"));
  both_refuse(limited("f", std::string(513, 'd')));
  both_refuse(limited("\u00e9", "d"));
  both_refuse(limited("f", "\xe9"));
}

TEST(what_could_not_be_read_is_a_bad_message_or_a_version) {
  const ClientSettings settings = settings_of();
  const Asked asked;
  for (std::uint16_t code = 1; code < wire::kCodes; ++code) {
    const auto body = refusal(wire::Op::unreadable, static_cast<wire::Code>(code), 0, "header.op", "9 is no operation");
    const bool allowed = code == 1 || code == 2;
    CHECK(judged(body, settings, asked) == (allowed ? refused_with(static_cast<wire::Code>(code)) : Reason::bad_reply));
    CHECK(judge_open(body, settings, 1).outcome.status == (allowed ? ENGRAM_REFUSED : ENGRAM_LOST));
  }
}

TEST(behind_every_plane_there_are_zeros) {
  for (const bool checksums : {false, true}) {
    if (checksums && !checksum_available()) continue;
    ClientSettings settings = settings_of(checksums);
    settings.columns = 250;  // 250 + 6 zeros, 8 + 56; then 1250 + 30, 40 + 24
    const Asked asked;
    const std::size_t wanted = 64 + 256 + 64 + 1280 + 64;
    const auto judged_with = [&](std::size_t at) {
      std::vector<std::byte> body(wanted);
      body[at] = std::byte{1};
      wire::LookupReply reply{checksums ? wire::kChecksum : 0U, 6, 0, 5, 0};
      if (checksums) reply.checksum = checksum(body.data() + 64, wanted - 64, kAskedSum);
      wire::store(wire::make_header(wire::Op::lookup, wire::Kind::reply, wire::Code::ok, 42, wanted - 32), body.data());
      wire::store(reply, body.data() + 32);
      CHECK(body_bytes(asked.lookup.batches, 250, 8) == wanted);
      return judge_lookup(body, settings, asked.lookup, wanted, 42, kAskedSum);
    };
    for (const std::size_t last_of_a_plane : {64 + 249, 320 + 7, 384 + 1249, 1664 + 39}) {
      CHECK(judged_with(last_of_a_plane) == Reason::none);
      CHECK(judged_with(last_of_a_plane + 1) == Reason::bad_reply);
    }
    CHECK(judged_with(wanted - 1) == Reason::bad_reply);
  }
}

TEST(what_a_server_says_is_shown_as_one_line) {
  const ClientSettings settings = settings_of();
  // A control sequence of eight bits and one of seven, an end of line of each set, a separator of lines; and what is text.
  const std::string detail = "a\u009b31mb\x1b[0mc\u0085d\ne\u2028f\u00e9\u2027\U0001F600";
  const auto body = refusal(wire::Op::open, wire::Code::identity, 1, "open\n", detail);
  const std::string text = judge_open(body, settings, 1).outcome.text;
  CHECK(text.find("open?: a?31mb?[0mc?d?e?f\u00e9\u2027\U0001F600;") != std::string::npos);
}

TEST(a_refused_open_says_both_identities_and_whether_asking_again_helps) {
  const ClientSettings settings = settings_of();
  const std::string theirs(64, '2');
  const auto body = refusal(wire::Op::open, wire::Code::identity, 1, "open.identity", "the server has " + theirs);
  const OpenAnswer answer = judge_open(body, settings, 1);
  CHECK(answer.outcome.status == ENGRAM_REFUSED && answer.final);
  CHECK(answer.outcome.text.find(theirs) != std::string::npos);
  CHECK(answer.outcome.text.find(hex(settings.identity)) != std::string::npos);
  CHECK(!judge_open(refusal(wire::Op::open, wire::Code::draining, 1, "header.op", "bye"), settings, 1).final);
}

TEST(a_server_that_says_yes_to_something_else_is_not_believed) {
  const ClientSettings settings = settings_of();
  const auto reply = [&](auto change) {
    wire::OpenReply record{settings.identity, 9, settings.batch_rows_max, 4};
    change(record);
    std::vector<std::byte> body(sizeof(wire::Header) + sizeof record);
    wire::store(wire::make_header(wire::Op::open, wire::Kind::reply, wire::Code::ok, 1, sizeof record), body.data());
    wire::store(record, body.data() + sizeof(wire::Header));
    return judge_open(body, settings, 1).outcome.status;
  };
  CHECK(reply([](wire::OpenReply&) {}) == ENGRAM_OK);
  CHECK(reply([](wire::OpenReply& r) { r.identity[5] ^= 1; }) == ENGRAM_LOST);
  CHECK(reply([](wire::OpenReply& r) { --r.batch_rows_max; }) == ENGRAM_LOST);
  CHECK(reply([](wire::OpenReply& r) { r.batch_rows_max = 16'777'216; }) == ENGRAM_OK);
  CHECK(reply([](wire::OpenReply& r) { r.batch_rows_max = 16'777'217; }) == ENGRAM_LOST);
  CHECK(reply([](wire::OpenReply& r) { r.calls_max = 0; }) == ENGRAM_LOST);
}
