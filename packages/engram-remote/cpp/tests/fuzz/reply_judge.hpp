// What every reader of replies must keep, whatever the bytes:
//
//     a reply is taken exactly if the contract allows it for what was asked; else there is a reason, the right one.  Nothing
//     outside the reply is read, and nothing of it is changed.
//
// A Reader has what client_frame.hpp has as functions: open, lookup.
#pragma once

#include <algorithm>
#include <string>

#include "client_staging.hpp"
#include "exchange.hpp"

namespace fuzz {

inline engram::Reason reason_of(contract::Answer answer, contract::Bytes reply) {
  switch (answer) {
    case contract::Answer::sound: return engram::Reason::none;
    case contract::Answer::refused:
      return static_cast<engram::Reason>(static_cast<std::uint32_t>(engram::Reason::refused) + contract::status_of(reply) - 1);
    case contract::Answer::changed: return engram::Reason::checksum;
    default: return engram::Reason::bad_reply;
  }
}

inline void judge_open_outcome(const engram::Outcome& outcome, bool final, contract::Bytes reply,
                               const contract::OpenAsked& asked) {
  const contract::Answer answer = contract::open_answer(reply, asked);
  HOLDS((outcome.status == ENGRAM_OK) == (answer == contract::Answer::sound), "an OPEN succeeds exactly if the server says so");
  HOLDS((outcome.status == ENGRAM_REFUSED) == (answer == contract::Answer::refused), "a refusal is known as one");
  HOLDS(outcome.status == ENGRAM_OK || !outcome.text.empty(), "a failure has a sentence");
  HOLDS(contract::is_one_line(std::as_bytes(std::span(outcome.text))), "a sentence can be shown, whatever a peer put into it");
  const bool passing = answer == contract::Answer::refused && contract::status_of(reply) == contract::kDraining;
  HOLDS(!final || (answer == contract::Answer::refused && !passing), "only a refusal can be final, and not that of one that drains");
}

// Where a sound reply has its rows.
inline void judge_planes(std::byte* base, const engram::ClientSettings& settings, const contract::LookupAsked& asked) {
  engram::PlaneWalk walk(base, settings.columns, settings.scales);
  std::size_t at = contract::kHeaderBytes + contract::kLookupReplyBytes;
  for (const std::uint32_t rows : asked.rows) {
    const engram::Planes planes = walk.next(rows);
    HOLDS(planes.values == base + at, "values lie where the contract says");
    at += contract::plane(rows, settings.columns);
    HOLDS(planes.scales == base + at, "scales lie where the contract says");
    at += contract::plane(rows, settings.scales);
  }
}

template <typename Reader>
void judge_open(Reader& reader, Answers& answers, const engram::ClientSettings& settings, std::uint64_t batch) {
  judge_open_request(engram::open_request(settings, batch), settings, batch);
  const contract::OpenAsked asked = open_asked(settings, batch);
  const Message reply = answers.to_open(asked);
  const LandingMemory memory(reply.size());
  std::copy(reply.begin(), reply.end(), memory.data());
  const engram::OpenAnswer answer = reader.open({memory.data(), memory.bytes()}, settings, batch);
  judge_open_outcome(answer.outcome, answer.final, reply, asked);
  HOLDS(std::equal(reply.begin(), reply.end(), memory.data()), "a reply is not changed by reading it");
}

template <typename Reader>
void judge_lookup(Reader& reader, Answers& answers, const engram::ClientSettings& settings, Choices& choices,
                  std::uint64_t batch) {
  const Question question(settings, choices);
  const LandingMemory room(settings.request_bytes_max());
  const engram::LookupRequest request =
      engram::write_lookup({room.data(), room.bytes()}, settings, question.lookup(), batch);
  HOLDS(request.bytes <= room.bytes(), "a request keeps to its room");
  const contract::Bytes written(room.data(), request.bytes);
  question.judge_request(written, batch);
  const std::uint64_t open_sum = choices.below(SIZE_MAX);
  const std::uint64_t asked_sum = engram::request_sum(written, settings, open_sum);
  HOLDS(asked_sum == (settings.checksum ? sum(written.subspan(contract::kHeaderBytes), open_sum) : 0),
        "the seed of a checksum is that of the request's body");

  const contract::LookupAsked asked = question.asked(batch);
  const std::size_t wanted = engram::body_bytes(question.lookup().batches, settings.columns, settings.scales);
  HOLDS(wanted == contract::reply_bytes(asked), "a reply has the bytes of its planes");
  HOLDS(wanted <= settings.reply_bytes_max(), "no reply is larger than the largest");
  const Message reply = answers.to_lookup(asked, asked_sum);
  const LandingMemory memory(reply.size());
  std::copy(reply.begin(), reply.end(), memory.data());
  const contract::Answer answer = contract::lookup_answer(reply, asked, sum, asked_sum);
  const engram::Reason reason =
      reader.lookup({memory.data(), memory.bytes()}, settings, question.lookup(), wanted, batch, asked_sum);
  HOLDS(reason == reason_of(answer, reply), "a reply is taken if it is sound, and else has its reason");
  HOLDS(std::equal(reply.begin(), reply.end(), memory.data()), "a reply is not changed by reading it");
  if (reason == engram::Reason::none) judge_planes(memory.data(), settings, asked);
}

}  // namespace fuzz
