#include "console/style.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ssh/base/text.h"

static int terminal_columns(int fd)
{
    struct winsize size;
    uint64_t columns;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *text = getenv("COLUMNS");
    if (text && text_to_u64(text, &columns) == 0 && columns > 0 && columns < 10000)
        return (int)columns;
    return 80;
}

void style_init(struct style *style, const struct args *args, FILE *out)
{
    bool terminal = isatty(fileno(out));
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = !term || strcmp(term, "dumb") == 0;

    setlocale(LC_CTYPE, "");
    style->plain = (args->options & OPTION_PLAIN) || !terminal || dumb;
    style->ascii = (args->options & OPTION_ASCII) || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    bool may_color = terminal && !dumb && !(args->options & OPTION_PLAIN) && !(no_color && *no_color);
    style->color = args->color == COLOR_ALWAYS || (args->color == COLOR_AUTO && may_color);
    style->columns = terminal ? terminal_columns(fileno(out)) : 0;
}

const char *style_glyph(const struct style *style, enum glyph glyph)
{
    static const char *const glyphs[GLYPH_COUNT][2] = {
        [GLYPH_UNKNOWN] = {"–", "-"}, [GLYPH_ARROW] = {"→", "->"}, [GLYPH_DOWN] = {"↓", "down "}, [GLYPH_UP] = {"↑", "up "},
        [GLYPH_MORE] = {"…", "~"},    [GLYPH_RANGE] = {"–", "-"},  [GLYPH_DOT] = {"·", "."},
    };
    return glyphs[glyph][style->ascii];
}

const char *style_paint(const struct style *style, enum paint paint)
{
    static const char *const codes[] = {
        [PAINT_NONE] = "",           [PAINT_GOOD] = "\033[32m", [PAINT_WARN] = "\033[33m",
        [PAINT_BAD] = "\033[1;31m",  [PAINT_DIM] = "\033[2m",   [PAINT_BOLD] = "\033[1m",
    };
    return style->color ? codes[paint] : "";
}

const char *style_end(const struct style *style)
{
    return style->color ? "\033[0m" : "";
}
