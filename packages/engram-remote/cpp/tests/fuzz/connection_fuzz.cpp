// Fuzz target: a client's whole connection, OPEN and lookups, on a transport whose every call may fail and whose server
// answers anything.
//
//     Whatever a server answers, and however a call ends, the client has the rows or the right reason; a reply has room where
//     it lands and keeps to it; every handle is freed once, and no call outlives its memory.

#include <algorithm>
#include <memory>
#include <vector>

#include "client_connection.hpp"
#include "fake_transport.hpp"
#include "reply_judge.hpp"

namespace {

// The largest refusal: header, record, field and clause.
constexpr std::size_t kRefusalBytesMax = 32 + 8 + 128 + 512;

class Rig {
 public:
  Rig(fuzz::Bytes stream, fuzz::Choices& choices)
      : choices_(choices),
        answers_(stream, choices),
        settings_(fuzz::any_settings(choices)),
        transport_(choices, [this](contract::Bytes request) { return answer(request); }) {}

  void run() {
    for (std::size_t more = 1 + choices_.below(2); more > 0; --more)
      if (!add_staging()) return;
    std::unique_ptr<engram::Connection> connection;
    bool final = false;
    const engram::Outcome outcome = engram::Connection::open(settings_, stagings_, kDeadline, connection, final);
    HOLDS((connection != nullptr) == (outcome.status == ENGRAM_OK), "a connection is there exactly if OPEN succeeded");
    judge_open(outcome, final);
    for (std::size_t more = choices_.below(5); connection && more > 0; --more) {
      if (choices_.one_in(4) && add_staging() && !connection->register_new(stagings_)) break;
      if (!look_up(*connection)) break;
    }
    if (connection && choices_.one_in(2)) connection->end();
  }

 private:
  static constexpr engram::Nanoseconds kDeadline = 0;

  bool add_staging() {
    const std::size_t bytes = std::max(settings_.reply_bytes_max(), kRefusalBytesMax) + choices_.below(2) * choices_.below(100);
    memory_.push_back(std::make_unique<fuzz::LandingMemory>(bytes));
    std::unique_ptr<engram::Staging> staging;
    const engram::Outcome outcome =
        engram::Staging::make(memory_.back()->data(), bytes, true, choices_.one_in(2), staging);
    if (outcome) stagings_.add(std::move(staging));
    return static_cast<bool>(outcome);
  }

  fuzz::Message answer(contract::Bytes request) {
    const std::uint64_t batch = contract::batch_of(request);
    return asked_ ? answers_.to_lookup(*asked_, seed_of(request)) : answers_.to_open(fuzz::open_asked(settings_, batch));
  }

  // Of the checksum that answers a lookup.
  std::uint64_t seed_of(contract::Bytes request) const {
    return settings_.checksum ? fuzz::sum(request.subspan(contract::kHeaderBytes), open_sum_) : 0;
  }

  void judge_open(const engram::Outcome& outcome, bool final) {
    const contract::Bytes request = transport_.request();
    if (request.empty() || !transport_.usable()) {
      HOLDS(!outcome && !final && !outcome.text.empty(), "without a connection there is a sentence, and another attempt");
      return;
    }
    batch_ = contract::batch_of(request);
    fuzz::judge_open_request(request, settings_, batch_);
    open_sum_ = fuzz::sum(request.subspan(contract::kHeaderBytes), 0);
    if (transport_.status() != OFL_OK) {
      HOLDS(outcome.status == ENGRAM_LOST && !final && !outcome.text.empty(), "a connection that was lost in OPEN is lost");
      return;
    }
    fuzz::judge_open_outcome(outcome, final, transport_.reply(), fuzz::open_asked(settings_, batch_));
  }

  // Whether the connection goes on, as its owner decides it.
  bool look_up(engram::Connection& connection) {
    const fuzz::Question question(settings_, choices_);
    asked_ = std::make_unique<contract::LookupAsked>(question.asked(++batch_));
    engram::Staging& staging = *stagings_.at(choices_.below(stagings_.count()));
    const engram::Connection::Answer answer = connection.lookup(question.lookup(), staging, kDeadline);

    question.judge_request(transport_.request(), batch_);
    const ofl_call_options& options = transport_.options();
    HOLDS(options.into == staging.buffer() && options.into_offset == 0, "rows land at the beginning of the staging");
    HOLDS(options.into_bytes >= std::max(contract::reply_bytes(*asked_), kRefusalBytesMax),
          "there is room for the rows, and for a refusal");
    HOLDS(!transport_.must_cancel(), "a lookup that is late is cancelled");
    HOLDS(answer.reason == expected(), "a lookup has its rows or the right reason");
    if (answer.reason == engram::Reason::none) {
      HOLDS(answer.bytes == transport_.reply().size(), "the bytes of a reply are counted");
      fuzz::judge_planes(staging.base(), settings_, *asked_);
    }
    return answer.reason == engram::Reason::none || answer.reason == engram::refused_with(engram::wire::Code::limit);
  }

  engram::Reason expected() const {
    switch (transport_.status()) {
      case OFL_OK: break;
      case OFL_DEADLINE: return engram::Reason::late;
      case OFL_LOST:
      case OFL_CLOSED:
      case OFL_UNKNOWN: return engram::Reason::lost;
      default: return engram::Reason::unsendable;
    }
    const contract::Bytes reply = transport_.reply();
    return fuzz::reason_of(contract::lookup_answer(reply, *asked_, fuzz::sum, seed_of(transport_.request())), reply);
  }

  fuzz::Choices& choices_;
  fuzz::Answers answers_;
  const engram::ClientSettings settings_;
  fuzz::FakeTransport transport_;
  std::vector<std::unique_ptr<fuzz::LandingMemory>> memory_;
  engram::Stagings stagings_;
  std::unique_ptr<contract::LookupAsked> asked_;  // none: an OPEN
  std::uint64_t batch_ = 0;
  std::uint64_t open_sum_ = 0;
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
