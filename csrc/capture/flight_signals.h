// Signals that a flight recording wants to hear of: those that would end the process without a word,
// and SIGUSR2, which asks for a file.
//
// A handler only sets a flag, which the drain thread looks at. Only signals that nobody handles are
// taken, and whoever sets a handler later simply replaces ours. The process still ends by the
// signal, a moment later; a second one ends it at once.
#pragma once

namespace gpumemtrace::capture {

// Of those below, the ones whose action is the default one.
void take_signals() noexcept;
// Where our handler is still in place, the default action again.
void give_back_signals() noexcept;
// In a forked child, which has no drain thread to look at the flags.
void forget_signals_after_fork() noexcept;

// SIGTERM, SIGHUP, SIGXCPU, or one of a crash (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL) that has
// come and would have ended the process; 0: none.
int ending_signal() noexcept;
// What has to be written is written: the process may end. Does not return where the signal was sent
// from outside; a thread that crashed ends the process itself.
void end_by_signal(int number) noexcept;

// Whether SIGUSR2 has come since the last call.
bool take_dump_signal() noexcept;

// "SIGTERM" and the like.
const char* name_of_signal(int number) noexcept;

}  // namespace gpumemtrace::capture
