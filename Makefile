# kedge: see README.md. `make help` lists the targets.
#
#   O=DIR     build folder (default build)        SAN=address,undefined | thread
#   CC=clang  another compiler                    DEV=1  warnings are errors
#   PREFIX=/usr/local DESTDIR=                    V=1    show commands

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/sh

SAN ?=
DEMO ?= ssh
O ?= build$(if $(SAN),-$(subst $(empty) ,-,$(subst $(comma), ,$(SAN))))
CC := $(if $(filter default undefined,$(origin CC)),cc,$(CC))
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
comma := ,
empty :=
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-6s %s\n' $(1) $(2))

all: programs

# ---- what this machine has: asked once, one line per part, cached in $(O)/config.mk ----

PKG_CONFIG ?= pkg-config
PACKAGES := event:libevent crypto:openssl inih:inih sqlite:sqlite3 jansson:jansson pcre2:libpcre2-8 utf8proc:libutf8proc \
	ssh2:libssh2 curses:ncursesw zstd:libzstd zlib:zlib xxhash:libxxhash
OPTIONAL := cmocka:cmocka
APT := gcc make pkg-config libevent-dev libssl-dev libinih-dev libsqlite3-dev libjansson-dev libpcre2-dev libutf8proc-dev \
	libssh2-1-dev libncurses-dev libzstd-dev zlib1g-dev libxxhash-dev libdnnl-dev libcmocka-dev openssh-client openssh-server tmux iproute2 procps python3 openssl iperf3

$(O)/config.mk: Makefile tests/configure.sh
	@mkdir -p $(O)
	@PKG_CONFIG='$(PKG_CONFIG)' CC='$(CC)' sh tests/configure.sh $@ required $(PACKAGES) optional $(OPTIONAL)

ifeq ($(filter deps demo clean help install-deps,$(MAKECMDGOALS)),)
include $(O)/config.mk
endif

# ---- flags; a change of them rebuilds, and nothing else does ----

CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wformat=2 \
	-Wundef -Wcast-qual -Wwrite-strings $(if $(DEV),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -include ssh/base/banned.h -fPIC -pthread $(WARN) $(CFLAGS) $(SANFLAGS) \
	$(event_CFLAGS) $(crypto_CFLAGS) $(inih_CFLAGS) $(sqlite_CFLAGS) $(jansson_CFLAGS) $(pcre2_CFLAGS) \
	$(utf8proc_CFLAGS) $(ssh2_CFLAGS) $(curses_CFLAGS) $(zstd_CFLAGS) $(zlib_CFLAGS) $(xxhash_CFLAGS) $(cmocka_CFLAGS)
ALL_LDFLAGS := -pthread $(SANFLAGS) $(LDFLAGS)

$(O)/flags: FORCE
	@mkdir -p $(O)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' > $@
FORCE:

# ---- rooms → archives; a program's main.c stays outside them ----

ROOMS := ssh/base ssh/wire ssh/link ssh/session ssh/launch profiles gpu/math gpu/model gpu/train scheduler console
room_sources = $(filter-out $(1)/main.c,$(wildcard $(1)/*.c))
room_archive = $(O)/lib/$(subst /,-,$(1)).a
objects = $(patsubst %.c,$(O)/obj/%.o,$(1))

define room
$(call room_archive,$(1)): $(call objects,$(call room_sources,$(1)))
	$$(call say,AR,$(1))
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room,$(r))))

$(O)/obj/%.o: %.c $(O)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

archives = $(foreach r,$(1),$(call room_archive,$(r)))
link = $(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

KEDGE_ROOMS := console ssh/launch ssh/session ssh/link ssh/wire profiles ssh/base
KEDGED_ROOMS := scheduler ssh/link ssh/wire profiles ssh/base
WORKER_ROOMS := gpu/train gpu/model gpu/math ssh/link ssh/wire profiles ssh/base

$(O)/kedge: $(O)/obj/console/main.o $(call archives,$(KEDGE_ROOMS))
	$(call say,LD,$@)
	$(link) $(event_LIBS) $(crypto_LIBS) $(inih_LIBS) $(jansson_LIBS) $(ssh2_LIBS) $(curses_LIBS) $(zstd_LIBS) $(zlib_LIBS) -lm
$(O)/kedged: $(O)/obj/scheduler/main.o $(call archives,$(KEDGED_ROOMS))
	$(call say,LD,$@)
	$(link) $(event_LIBS) $(crypto_LIBS) $(inih_LIBS) $(sqlite_LIBS) $(jansson_LIBS) -lm
# The worker reads no INI file: profiles/ini.o is in the archive and is not pulled in, so inih is not linked.
$(O)/kedge-worker: $(O)/obj/gpu/train/main.o $(call archives,$(WORKER_ROOMS))
	$(call say,LD,$@)
	$(link) $(event_LIBS) $(crypto_LIBS) $(jansson_LIBS) $(pcre2_LIBS) $(utf8proc_LIBS) $(zstd_LIBS) -ldl -lm

# Long loops over rows, which -O2 does not vectorise.
$(call objects,gpu/math/statistics.c gpu/math/statistics_eigen.c gpu/math/payload.c gpu/math/outer.c gpu/train/sync.c ssh/wire/planes.c): ALL_CFLAGS += -O3

# The CPU backend: its kernels are compiled three times and chosen at run time (gpu/cpu/kernels.h). Under the thread sanitizer they run
# on one thread: it cannot see the synchronisation inside an OpenMP runtime and would take every parallel loop for a race.
OPENMP := $(if $(findstring thread,$(SAN)),-fopenmp-simd,$(openmp_FLAGS))
CPU_PLAIN := $(filter-out gpu/cpu/kernels.c gpu/cpu/kernels_%.c,$(wildcard gpu/cpu/*.c))
CPU_KERNELS := $(wildcard gpu/cpu/kernels.c gpu/cpu/kernels_*.c)
CPU_OBJECTS := $(call objects,$(CPU_PLAIN)) $(foreach i,base avx2 avx512,$(patsubst %.c,$(O)/obj/%.$(i).o,$(CPU_KERNELS)))
ISA_base :=
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512
define kernel_rule
$(O)/obj/%.$(1).o: %.c $(O)/flags
	$$(call say,CC,"$$< ($(1))")
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) -O3 $$(OPENMP) -ffp-contract=fast -fno-math-errno -fno-trapping-math $$(ISA_$(1)) -DKERNEL_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach i,base avx2 avx512,$(eval $(call kernel_rule,$(i))))
$(call objects,$(CPU_PLAIN)): ALL_CFLAGS += $(OPENMP)
$(call objects,$(wildcard gpu/cpu/avx512*.c)): ALL_CFLAGS += -O3 -fno-math-errno -fno-trapping-math $(ISA_avx512) -mprfchw
$(call objects,$(wildcard gpu/cpu/amx*.c)): ALL_CFLAGS += -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math $(ISA_avx512) -mavx512bf16 -mamx-tile -mamx-bf16 -mprfchw

$(O)/kedge-cpu.so: $(CPU_OBJECTS) $(call archives,gpu/math ssh/base)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -shared $(OPENMP) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(dnnl_LIBS) -lm

PROGRAMS := $(foreach p,kedge:console kedged:scheduler kedge-worker:gpu/train,$(if $(wildcard $(lastword $(subst :, ,$(p)))/main.c),$(O)/$(firstword $(subst :, ,$(p))))) \
	$(if $(dnnl_LIBS),$(if $(wildcard gpu/cpu/*.c),$(O)/kedge-cpu.so))
programs: $(PROGRAMS)

# ---- tests: every .c under tests/{unit,ops,link} is a program, every .sh there and under tests/system a script ----

TEST_SOURCES := $(wildcard tests/unit/*.c tests/ops/*.c tests/link/*.c)
TEST_HELPERS := $(wildcard tests/helpers/*.c)
TESTS := $(patsubst %.c,$(O)/%,$(TEST_SOURCES))
BENCHES := $(patsubst %.c,$(O)/%,$(wildcard tests/bench/*.c))
FUZZERS := $(patsubst %.c,$(O)/%,$(wildcard tests/fuzz/*.c))
ALL_ARCHIVES := $(foreach r,$(ROOMS),$(if $(call room_sources,$(r)),$(call room_archive,$(r))))
ALL_LIBS := $(event_LIBS) $(crypto_LIBS) $(inih_LIBS) $(sqlite_LIBS) $(jansson_LIBS) $(pcre2_LIBS) $(utf8proc_LIBS) $(ssh2_LIBS) $(curses_LIBS) $(zstd_LIBS) $(zlib_LIBS) -ldl -lm

$(TESTS): $(O)/%: $(O)/obj/%.o $(call objects,$(TEST_HELPERS)) $(ALL_ARCHIVES)
	$(call say,LD,$@)
	$(link) -Wl,--as-needed $(cmocka_LIBS) $(ALL_LIBS)
$(BENCHES): $(O)/%: $(O)/obj/%.o $(call objects,$(TEST_HELPERS)) $(ALL_ARCHIVES)
	$(call say,LD,$@)
	$(link) -Wl,--as-needed $(cmocka_LIBS) $(ALL_LIBS)
# A backend that computes what is not finite when it is told to, around the true one (tests/system/replica_fault.sh).
FAULTY := $(O)/tests/system/lib/faulty.so
$(FAULTY): tests/system/lib/faulty.c $(O)/flags
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -MMD -MP -o $@ $< -ldl
tests: $(TESTS) $(FAULTY)

check: programs tests
	@O='$(O)' SAN='$(SAN)' CC='$(CC)' sh tests/run.sh $(JOBS) $(TESTS) $(sort $(wildcard tests/unit/*.sh tests/link/*.sh tests/system/*.sh tests/tui/*.sh))

bench: programs $(BENCHES)
	@O='$(O)' sh tests/bench/bench.sh

# Trains a real small model through each codec; what the runs are and what the columns mean: tests/bench/quality.sh.
QUALITY ?=
bench-quality: programs
	@O='$(O)' sh tests/bench/quality.sh $(QUALITY)

# Each fuzzer is one function over bytes (LLVMFuzzerTestOneInput); FUZZ_SECONDS each. fuzzer-no-link marks the edges of all code,
# without which a fuzzer is blind; only the fuzzers themselves get libFuzzer's main.
FUZZ_SECONDS ?= 60
fuzz:
	@$(MAKE) --no-print-directory O=$(O)-fuzz CC=clang SAN=address,undefined,fuzzer-no-link fuzzers
	@O='$(O)-fuzz' FUZZ_SECONDS='$(FUZZ_SECONDS)' sh tests/fuzz/fuzz.sh
fuzzers: $(FUZZERS)
$(FUZZERS): $(O)/%: $(O)/obj/%.o $(ALL_ARCHIVES)
	$(call say,LD,$@)
	$(link) -fsanitize=fuzzer $(ALL_LIBS)

# ---- the building's own rules ----

HEADERS := $(wildcard $(addsuffix /*.h,$(ROOMS) gpu/cpu))
headers: $(patsubst %.h,$(O)/headers/%.ok,$(HEADERS))
$(O)/headers/%.ok: %.h $(O)/flags
	@mkdir -p $(@D)
	@echo '#include "$<"' | $(CC) $(ALL_CFLAGS) -x c -fsyntax-only - && touch $@
layers: programs
	@O='$(O)' sh tests/unit/layers.sh
long:
	@wc -l $$(git ls-files '*.c' '*.h' '*.sh') | sort -rn | sed -n '2,11p'

# ---- people ----

deps:
	@sh tests/deps.sh $(APT)
demo:
	@CC="$(CC)" sh tests/configure.sh --probe && { [ '$(DEMO)' = local ] || [ -x /usr/sbin/sshd ]; } || $(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory programs
	@O='$(O)' DEMO='$(DEMO)' sh tests/system/demo/demo.sh

MAN := $(wildcard man/*.[1-8])
install: programs
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/kedge/profiles
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(wildcard profiles/*.ini) $(DESTDIR)$(PREFIX)/share/kedge/profiles
	for page in $(MAN); do section=$${page##*.}; install -d $(DESTDIR)$(PREFIX)/share/man/man$$section; \
		install -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$$section; done
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(notdir $(PROGRAMS)))
	rm -rf $(DESTDIR)$(PREFIX)/share/kedge
	for page in $(MAN); do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done
clean:
	rm -rf build build-*
help:
	@sed -n '3,7p' Makefile
	@echo 'make            build all that can be built here'
	@echo 'make deps       install the packages (root or sudo); says what it does'
	@echo 'make demo       set up, build, train a small model over SSH for about a minute, explain; DEMO=local without SSH'
	@echo 'make check      every test; the last line counts them'
	@echo 'make bench      speed beside named peers, in one run'
	@echo 'make bench-quality   what each codec costs in loss, as CSV; QUALITY="--until 20 subspace" for less'
	@echo 'make fuzz       fuzzers, FUZZ_SECONDS=60 each'
	@echo 'make headers    every header compiles alone'
	@echo 'make layers     who may include whom'
	@echo 'make long       the ten longest files'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR='

-include $(shell find $(O)/obj -name '*.d' 2>/dev/null)
.PHONY: all programs tests check bench bench-quality fuzz fuzzers headers layers long deps demo install uninstall clean help FORCE
